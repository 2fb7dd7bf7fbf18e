"""Curricula of sample difficulty, which may increase during training.

The state is part of the training's network state, so checkpoints include it.
After each update, `update` takes the mean loss over all devices, so that the
state is the same on each.
"""

import dataclasses
import math
import numbers
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from rmc_jax.checks import one_of
from rmc_jax.checks import positive_int
from rmc_jax.tasks.learn_to_execute.sample import Difficulty
from rmc_jax.types import Array

NAMES = ('baseline', 'mix', 'naive', 'combine')


class CurriculumState(NamedTuple):
  """The state of a curriculum. W is the window."""

  difficulty: Difficulty  # the current largest length and nesting
  losses: Array  # [W] float32, mean losses of the last updates, newest last
  num_losses: Array  # () int32, those at this difficulty, at most W


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
    threshold: see above; the authors' classes have 0.05, their factory 0.1.
    window: W.
  """

  name: str
  max_length: int
  max_nesting: int
  threshold: float = 0.1
  window: int = 10

  def __post_init__(self):
    one_of('curriculum', self.name, NAMES)
    positive_int('max_length', self.max_length)
    positive_int('max_nesting', self.max_nesting)
    # Two losses have a difference.
    positive_int('curriculum: window', self.window, 2)
    threshold = self.threshold
    if not isinstance(threshold, numbers.Real) or not math.isfinite(threshold):
      raise ValueError(
        f'curriculum: threshold must be a finite number. Got: {threshold!r}.'
      )

  def initial_state(self) -> CurriculumState:
    """The state before the first update."""
    first = Difficulty(self.max_length, self.max_nesting)
    if self.name in ('naive', 'combine'):
      first = Difficulty(1, 1)
    return CurriculumState(
      difficulty=Difficulty(*map(jnp.int32, first)),
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
    """Adds the mean loss () of a batch; increases the difficulty if it is due.

    The difficulty stays while a loss in the window is not finite.
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
