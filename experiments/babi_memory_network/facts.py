"""Supervision by facts: which statements a question needs, in order."""

import jax.numpy as jnp

from experiments.babi.questions import TrainingSets
from rmc_jax.errors import ConfigurationError
from rmc_jax.types import Array


def check(sets: TrainingSets) -> None:
  """Raises ConfigurationError if a training question names no statements."""
  for name, supporting in zip(sets.names, sets.train.supporting, strict=True):
    if not supporting.any(1).all():
      raise ConfigurationError(
        "config.supervision='facts' needs the statements that support each "
        f'answer, and the prepared file of {name} does not name them all. '
        'Prepare the original text, or set --config.supervision=heuristic.'
      )


def in_order(supporting: Array, num_hops: int) -> Array:
  """Returns what each hop should choose, [B, H, M + 1] bool.

  Args:
    supporting: [B, M] 1, 2, ... for the statements that support the answer, in
      this order; after them comes no further statement.
    num_hops: H.
  """
  hop = jnp.arange(num_hops)[None, :, None]  # [1, H, 1]
  is_fact = supporting[:, None] == hop + 1  # [B, H, M]
  is_end = supporting.max(-1)[:, None, None] == hop  # [B, H, 1]
  return jnp.concatenate([is_fact, is_end], axis=-1)
