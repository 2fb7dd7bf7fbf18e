"""Tests rmc_jax/rl/evaluate.py."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rmc_jax import rl
from rmc_jax.models.actor_critic import AgentOutput
from tests.rl.agents import make_network
from tests.rl.agents import random_params
from tests.rl.recall import CUES
from tests.rl.recall import LIMIT
from tests.rl.recall import Recall

B = 40
TRUNCATED = 0.3


def oracle(wrong=0):
  """An agent that repeats the cue, or the one after it."""

  def apply(params, inputs, state):
    del params
    seen = inputs.observation[0, :, 0, 0]  # [B, CUES]
    cue = jnp.where(inputs.first[0], seen.argmax(-1), state)
    logits = 50.0 * jax.nn.one_hot((cue + wrong) % CUES, CUES)
    return AgentOutput(logits[None], jnp.zeros((1, len(cue)))), cue

  return rl.Network(
    init=lambda key: (),
    apply=apply,
    trace=lambda *_: (),
    initial_state=lambda params, size: jnp.full(size, -1),
  )


def keys(seed=0):
  return jax.random.split(jax.random.key(seed), B)


@pytest.mark.parametrize('greedy', [False, True])
def test_each_episode_counts_once_and_to_its_end(greedy):
  final = rl.play_episodes(
    oracle(), (), Recall(), TRUNCATED, keys(), greedy=greedy
  )
  game = final.last
  ends = np.minimum(game.length, LIMIT)
  np.testing.assert_array_equal(game.step, ends)
  np.testing.assert_array_equal(final.episode_length, ends)
  np.testing.assert_array_equal(final.episode_return, game.length <= LIMIT)
  np.testing.assert_array_equal(final.first.cue, game.cue)
  assert not final.first.step.any()
  # All lengths and truncations occur, so short episodes did not win.
  assert set(np.asarray(ends)) == {2, 3, 4, LIMIT}


def test_wrong_actions_earn_no_return():
  final = rl.play_episodes(oracle(wrong=1), (), Recall(), 0.0, keys())
  assert not final.episode_return.any()


def test_greedy_takes_the_most_probable_action():
  network = make_network(Recall())
  params = random_params(network, scale=0.1)  # Nearly uniform policies.

  def returns(greedy, scale):
    def apply(params, inputs, state):
      output, state = network.apply(params, inputs, state)
      return output._replace(logits=scale * output.logits), state

    scaled = network._replace(apply=apply)
    final = rl.play_episodes(
      scaled, params, Recall(), 0.0, keys(), greedy=greedy
    )
    return np.asarray(final.episode_return)

  # Scaling logits does not change the most probable action.
  np.testing.assert_array_equal(returns(True, 1.0), returns(True, 0.01))
  np.testing.assert_array_equal(returns(True, 1.0), returns(False, 1e4))
  assert (returns(True, 1.0) != returns(False, 1.0)).any()


def test_episodes_do_not_depend_on_the_others():
  network = make_network(Recall())
  params = random_params(network)
  whole = rl.play_episodes(network, params, Recall(), TRUNCATED, keys())
  part = rl.play_episodes(network, params, Recall(), TRUNCATED, keys()[5:9])
  np.testing.assert_array_equal(part.episode_return, whole.episode_return[5:9])
  np.testing.assert_array_equal(part.episode_length, whole.episode_length[5:9])
