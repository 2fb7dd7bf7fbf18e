"""Base classes of environments, games and wrappers."""

import abc
import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from rmc_jax.checks import one_of
from rmc_jax.envs.types import Outcome
from rmc_jax.types import Array

VIEWS = ('viewport', 'full')
PIXELS = ('rgb', 'symbolic')


class Environment(abc.ABC):
  """A game as pure functions of one state; use `jax.vmap` for many.

  An environment itself holds nothing but static choices. It can be hashed, so
  it may be a static argument of `jax.jit`.

    state = env.reset(reset_key, params)
    state, outcome = env.step(step_key, state, action, params)
    pixels = env.observe(state, params)

  States and parameters are pytrees of arrays and numbers.
  """

  @property
  @abc.abstractmethod
  def num_actions(self) -> int:
    """Actions are the integers below it."""

  @property
  @abc.abstractmethod
  def observation_spec(self) -> jax.ShapeDtypeStruct:
    """Shape, (rows, columns, channels), and type of an observation."""

  @property
  @abc.abstractmethod
  def observation_limit(self) -> int:
    """The largest value in an observation; the smallest is 0."""

  @abc.abstractmethod
  def reset(self, key: Array, params: Any) -> Any:
    """Returns the first state of an episode; consumes the key."""

  @abc.abstractmethod
  def step(
    self, key: Array, state: Any, action: Array, params: Any
  ) -> tuple[Any, Outcome]:
    """Returns the state after an action, and its outcome; consumes the key.

    Args:
      key: a PRNG key.
      state: of the game. One that has ended goes on as if it had not.
      action: [] integer below `num_actions`; others are clipped.
      params: the rules.
    """

  @abc.abstractmethod
  def observe(self, state: Any, params: Any) -> Array:
    """Returns what the agent sees, see `observation_spec`."""


@dataclasses.dataclass(frozen=True)
class Game(Environment):
  """An environment with the views of Santoro et al. 2018, section 4.2.

  Attributes:
    view: 'viewport', 5 x 5 cells with the player in the centre, or 'full'.
    pixels: 'rgb' or 'symbolic'.
  """

  view: str = 'viewport'
  pixels: str = 'rgb'

  def __post_init__(self):
    one_of('view', self.view, VIEWS)
    one_of('pixels', self.pixels, PIXELS)

  @property
  @abc.abstractmethod
  def actions(self) -> tuple[str, ...]:
    """The names of the actions."""

  @property
  def num_actions(self) -> int:
    """Actions are the integers below it, see `actions`."""
    return len(self.actions)

  @abc.abstractmethod
  def text(self, state: Any) -> str:
    """Returns the whole game as lines of characters; not under `jax.jit`."""


@dataclasses.dataclass(frozen=True)
class Wrapper(Environment):
  """An environment that changes some methods of `env`.

  Attributes:
    env: the environment, which must not reset by itself.
  """

  env: Environment

  @property
  def num_actions(self) -> int:
    """As in `env`."""
    return self.env.num_actions

  @property
  def observation_spec(self) -> jax.ShapeDtypeStruct:
    """As in `env`."""
    return self.env.observation_spec

  @property
  def observation_limit(self) -> int:
    """As in `env`."""
    return self.env.observation_limit

  def reset(self, key: Array, params: Any) -> Any:
    """As in `env`."""
    return self.env.reset(key, params)

  def step(
    self, key: Array, state: Any, action: Array, params: Any
  ) -> tuple[Any, Outcome]:
    """As in `env`.

    Raises:
      ValueError: `env` resets by itself.
    """
    state, outcome = self.env.step(key, state, action, params)
    if outcome.final_state is not None:
      raise ValueError(
        f'{type(self).__name__} must be inside AutoReset, not around it. '
        f'Got: {self}.'
      )
    return state, outcome

  def observe(self, state: Any, params: Any) -> Array:
    """As in `env`."""
    return self.env.observe(state, params)


def select(condition: Array, chosen: Any, other: Any) -> Any:
  """Returns the one or the other of two pytrees; `condition` is []."""
  return jax.tree.map(lambda x, y: jnp.where(condition, x, y), chosen, other)
