"""Random sequences of episodes for the tests."""

import numpy as np


def random_sequences(num_steps, batch, seed=0):
  """Returns arguments of vtrace, [T, B]; some episodes are truncated."""
  rng = np.random.default_rng(seed)
  shape = num_steps, batch
  terminated = rng.random(shape) < 0.1
  truncated = ~terminated & (rng.random(shape) < 0.2)
  values = rng.standard_normal(shape)
  next_values = np.concatenate([values[1:], rng.standard_normal((1, batch))])
  ended = terminated | truncated
  # The value of the last observation, not of the first of the next episode.
  next_values = np.where(ended, rng.standard_normal(shape), next_values)
  assert truncated[:-1].any()
  assert terminated[:-1].any()
  return {
    'log_ratios': rng.standard_normal(shape),
    'rewards': rng.standard_normal(shape),
    'discounts': 0.9 * ~terminated,
    'ended': ended,
    'values': values,
    'next_values': next_values,
  }
