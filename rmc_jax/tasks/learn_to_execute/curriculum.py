"""Curricula of sample difficulty, which may increase during training.

The state is part of the training's network state, so checkpoints include it.
Samples are drawn with `sample_difficulty(state, key)`. After each update,
`update(state, mean_loss)` takes the mean loss of the whole batch, over all
devices, so that the state is the same on each.
"""

import dataclasses
import math
import numbers
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from rmc_jax.tasks.learn_to_execute.sample import Difficulty
from rmc_jax.types import Array

NAMES = ('baseline', 'mix', 'naive', 'combine')


class CurriculumState(NamedTuple):
  """The state of a curriculum. W is the window.

  Attributes:
    difficulty: the current largest length and nesting.
    losses: [W] float32, mean losses of the last updates, newest last.
    num_losses: () int32, the number of them at this difficulty, at most W.
  """

  difficulty: Difficulty
  losses: Array
  num_losses: Array


@dataclasses.dataclass(frozen=True)
class Curriculum:
  """One of four ways to draw the length and nesting of a sample.

  'baseline': always the maxima. 'mix': uniform from 1 to the maxima (Santoro
  et al. 2018, appendix A.2). 'naive': the current difficulty. 'combine':
  uniform from 1 to the current difficulty. Length and nesting are independent.

  The current difficulty begins at (1, 1). After W losses l_1 .. l_W at one
  difficulty,

    mean_i(l_{i+1} - l_i) / mean_i(l_i) < threshold

  increments it and begins a new window; otherwise the window slides on. First
  the length is incremented up to its maximum, where it stays, then the nesting.
  This is the rule of the authors' code, `sonnet/examples/learn_to_execute.py`.
  A falling loss always satisfies it, so with a positive threshold the
  difficulty increases about every W updates.

  Departure: 'mix' draws the nesting up to its own maximum, as the paper says;
  one version of the authors' code draws it up to that of the length.

  Attributes:
    name: one of the four.
    max_length: largest length.
    max_nesting: largest nesting.
    threshold: see above; the authors' classes have 0.05, their factory 0.1.
    window: W.
  """

  name: str
  max_length: int
  max_nesting: int
  threshold: float = 0.1
  window: int = 10

  def __post_init__(self):
    if self.name not in NAMES:
      raise ValueError(
        f'A curriculum must be one of {NAMES}. Got: {self.name!r}.'
      )
    for field in ('max_length', 'max_nesting'):
      if getattr(self, field) < 1:
        raise ValueError(
          f'{field} must be at least 1. Got: {getattr(self, field)}.'
        )
    is_number = isinstance(self.threshold, numbers.Real)
    if not is_number or not math.isfinite(self.threshold):
      raise ValueError(
        f'threshold must be a finite number. Got: {self.threshold!r}.'
      )
    if self.window < 2:
      raise ValueError(
        'window must be at least 2, for a difference between losses. '
        f'Got: {self.window}.'
      )

  def initial_state(self) -> CurriculumState:
    """The state before the first update."""
    increases = self.name in ('naive', 'combine')
    return CurriculumState(
      difficulty=Difficulty(
        length=jnp.array(1 if increases else self.max_length, jnp.int32),
        nesting=jnp.array(1 if increases else self.max_nesting, jnp.int32),
      ),
      losses=jnp.zeros([self.window], jnp.float32),
      num_losses=jnp.array(0, jnp.int32),
    )

  def sample_difficulty(self, state: CurriculumState, key: Array) -> Difficulty:
    """Draws the difficulty of one sample, () int32 each; consumes `key`."""
    length, nesting = state.difficulty
    if self.name in ('baseline', 'naive'):
      return state.difficulty
    length_key, nesting_key = jax.random.split(key)
    return Difficulty(
      length=jax.random.randint(length_key, (), 1, length + 1),
      nesting=jax.random.randint(nesting_key, (), 1, nesting + 1),
    )

  def update(self, state: CurriculumState, mean_loss: Array) -> CurriculumState:
    """Adds the loss of an update and increments the difficulty if it is time.

    The difficulty stays while a loss in the window is not finite.

    Args:
      state: the state during the update.
      mean_loss: [] mean loss of the whole batch.

    Returns:
      The state for the next update.
    """
    chex.assert_shape(mean_loss, ())
    length, nesting = state.difficulty
    losses = jnp.append(state.losses[1:], jnp.asarray(mean_loss, jnp.float32))
    num_losses = jnp.minimum(state.num_losses + 1, self.window)
    trend = jnp.diff(losses).mean() / losses.mean()
    passed = (num_losses == self.window) & (trend < self.threshold)
    longer = passed & (length < self.max_length)
    deeper = passed & ~longer & (nesting < self.max_nesting)
    return CurriculumState(
      difficulty=Difficulty(length + longer, nesting + deeper),
      losses=losses,
      num_losses=jnp.where(passed, 0, num_losses),
    )
