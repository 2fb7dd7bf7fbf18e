"""An environment that needs memory, in JAX and for Gymnasium."""

import dataclasses

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from rmc_jax.envs import Environment
from rmc_jax.envs import Outcome

CUES = 3
LIMIT = 5  # steps of an episode that is truncated


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class State:
  cue: jax.Array  # []
  length: jax.Array  # [] steps of the episode, 2 .. 4; 9 if it is truncated
  step: jax.Array  # []


@dataclasses.dataclass(frozen=True)
class Recall(Environment):
  """Shows a cue in the first observation only; the last action repeats it.

  A correct last action is rewarded with 1. `params` is the probability that
  the episode has no last action and is truncated after LIMIT steps.
  """

  num_actions = CUES
  observation_spec = jax.ShapeDtypeStruct((1, 2, CUES), jnp.float32)
  observation_limit = 1

  def reset(self, key, params):
    cue, length, truncated = jax.random.split(key, 3)
    return State(
      cue=jax.random.randint(cue, (), 0, CUES),
      length=jnp.where(
        jax.random.uniform(truncated) < params,
        9,
        jax.random.randint(length, (), 2, 5),
      ),
      step=jnp.zeros((), jnp.int32),
    )

  def step(self, key, state, action, params):
    del key, params
    state = dataclasses.replace(state, step=state.step + 1)
    terminated = state.step == state.length
    return state, Outcome(
      reward=(terminated & (action == state.cue)).astype(jnp.float32),
      terminated=terminated,
      truncated=~terminated & (state.step == LIMIT),
    )

  def observe(self, state, params):
    del params
    cue = (state.step == 0) * jax.nn.one_hot(state.cue, CUES)
    last = jnp.ones(CUES) * (state.step + 1 == state.length)
    return jnp.stack([cue, last])[None]


class RecallEnv(gymnasium.Env):
  """The same for Gymnasium, with actions from 1; a fifth is truncated."""

  observation_space = gymnasium.spaces.Box(0, 1, (2 * CUES,), np.float32)
  action_space = gymnasium.spaces.Discrete(CUES, start=1)

  def reset(self, *, seed=None, options=None):
    super().reset(seed=seed)
    self.cue = self.np_random.integers(CUES)
    self.length, self.steps = self.np_random.integers(2, 5), 0
    self.truncated = self.np_random.random() < 0.2
    return self.observe(), {}

  def step(self, action):
    assert self.action_space.contains(action)
    self.steps += 1
    ended = bool(self.steps == self.length)
    terminated = ended and not self.truncated
    reward = float(terminated and action - 1 == self.cue)
    return self.observe(), reward, terminated, ended and self.truncated, {}

  def observe(self):
    cue = (self.steps == 0) * np.eye(CUES)[self.cue]
    last = np.ones(CUES) * (self.steps + 1 == self.length)
    return np.concatenate([cue, last]).astype(np.float32)
