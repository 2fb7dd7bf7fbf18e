"""Starts episodes from states that were drawn before."""

import dataclasses
from typing import Any

import jax

from rmc_jax.checks import positive_int
from rmc_jax.envs.environment import Wrapper
from rmc_jax.envs.types import Outcome
from rmc_jax.types import Array
from rmc_jax.types import ArrayTree


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Bank:
  """The parameters of an environment and first states of episodes."""

  params: Any  # of `env`
  levels: ArrayTree  # states of `env` with a leading axis


@dataclasses.dataclass(frozen=True)
class LevelBank(Wrapper):
  """Resets `env` to a random one of the levels that were drawn before.

  Its parameters are a `Bank`. `AutoReset` calls `reset` in every step, which
  makes BoxWorld slow without a bank; docs/performance.md has the numbers.

    bank = LevelBank(env).draw(key, params, 4096)
    env = AutoReset(LevelBank(env))
    state = env.reset(key, bank)

  `refresh` replaces some of the levels, so that training sees new ones.
  """

  def draw(self, key: Array, params: Any, num_levels: int) -> Bank:
    """Returns a bank of new levels; consumes the key."""
    positive_int('num_levels', num_levels)
    keys = jax.random.split(key, num_levels)
    return Bank(params, jax.vmap(self.env.reset, (0, None))(keys, params))

  def refresh(self, key: Array, bank: Bank, num_levels: int) -> Bank:
    """Replaces levels, chosen at random, by new ones; consumes the key."""
    size = _size(bank)
    if num_levels > size:
      raise ValueError(
        f'num_levels must be at most the size of the bank, {size}. '
        f'Got: {num_levels}.'
      )
    draw_key, choice_key = jax.random.split(key)
    fresh = self.draw(draw_key, bank.params, num_levels).levels
    places = jax.random.choice(choice_key, size, (num_levels,), replace=False)
    levels = jax.tree.map(
      lambda old, new: old.at[places].set(new), bank.levels, fresh
    )
    return dataclasses.replace(bank, levels=levels)

  def reset(self, key: Array, params: Bank) -> Any:
    """Returns a level of the bank; consumes the key."""
    index = jax.random.randint(key, (), 0, _size(params))
    return jax.tree.map(lambda leaf: leaf[index], params.levels)

  def step(
    self, key: Array, state: Any, action: Array, params: Bank
  ) -> tuple[Any, Outcome]:
    """As in `env`."""
    return super().step(key, state, action, params.params)

  def observe(self, state: Any, params: Bank) -> Array:
    """As in `env`."""
    return self.env.observe(state, params.params)


def _size(bank: Bank) -> int:
  return jax.tree.leaves(bank.levels)[0].shape[0]
