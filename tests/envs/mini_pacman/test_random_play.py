"""Tests random play against the statistics of other programs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rmc_jax.envs.mini_pacman import make_params
from rmc_jax.envs.mini_pacman import MiniPacman

NUM_GAMES = 1000


def random_episodes(preset, mode, num_games, seed=0):
  """Returns the returns and lengths of episodes of uniformly random actions."""
  env, params = MiniPacman(), make_params(preset, mode)

  @jax.jit
  def advance(carry, key):
    def one(carry, key):
      state, done, total, length = carry
      action_key, step_key = jax.random.split(key)
      action = jax.random.randint(action_key, (), 0, 5)
      state, outcome = env.step(step_key, state, action, params)
      total += jnp.where(done, 0.0, outcome.reward)
      length += ~done
      done |= outcome.terminated | outcome.truncated
      return state, done, total, length

    def step(carry, key):
      keys = jax.random.split(key, num_games)
      return jax.vmap(one)(carry, keys), None

    return jax.lax.scan(step, carry, jax.random.split(key, 250))[0]

  keys = jax.random.split(jax.random.key(seed), num_games)
  carry = (
    jax.vmap(env.reset, (0, None))(keys, params),
    jnp.zeros(num_games, bool),
    jnp.zeros(num_games),
    jnp.zeros(num_games, jnp.int32),
  )
  for part in range(12):
    carry = advance(carry, jax.random.key(100 + part))
    if carry[1].all():
      break
  assert carry[1].all()
  return np.asarray(carry[2]), np.asarray(carry[3])


def near_the_median(values, num):
  """Returns three standard errors around the median of `num` values."""
  share = 1.5 / np.sqrt(num)
  low, high = np.quantile(values, [0.5 - share, 0.5 + share])
  return low - 1e-4, high + 1e-4  # float32 sums of rewards.


# Mean, standard deviation and median of the return, and the median length, of
# 1000 episodes of the public code.
@pytest.mark.slow
@pytest.mark.parametrize(
  'mode, mean, deviation, median, length',
  [
    ('regular', 9.78, 10.5, 8, 42),
    ('avoid', -16.86, 3.3, -17.2, 41),
    ('hunt', -19.99, 2.2, -20, 42),
    ('ambush', -20.98, 2.1, -20.8, 42),
    ('rush', 0.27, 3.3, -0.7, 42),
  ],
)
def test_random_play_scores_as_in_the_public_code(
  mode, mean, deviation, median, length
):
  returns, lengths = random_episodes('public', mode, NUM_GAMES)
  error = np.hypot(
    returns.std() / np.sqrt(NUM_GAMES), deviation / np.sqrt(1000)
  )
  assert abs(returns.mean() - mean) < 3 * error
  for values, expected in ((returns, median), (lengths, length)):
    low, high = near_the_median(values, 1000)
    assert low <= expected <= high


# Median return, mean return and median length of 1500 episodes of a second
# program with the same rules. Where death has a reward, that program may count
# one twice, which the medians hardly show.
@pytest.mark.slow
@pytest.mark.parametrize(
  'mode, median, mean, length',
  [
    ('regular', 5, 7.22, 20),
    ('avoid', -18.7, None, 20),
    ('hunt', -20, None, 20),
    ('ambush', -20.5, None, 20),
    ('rush', -0.5, 0.41, 20),
  ],
)
def test_random_play_scores_by_the_papers_rules(mode, median, mean, length):
  returns, lengths = random_episodes('paper', mode, NUM_GAMES)
  if mean is not None:
    error = np.hypot(1 / np.sqrt(NUM_GAMES), 1 / np.sqrt(1500)) * returns.std()
    assert abs(returns.mean() - mean) < 3 * error
  for values, expected in ((returns, median), (lengths, length)):
    low, high = near_the_median(values, 1500)
    assert low <= expected <= high
