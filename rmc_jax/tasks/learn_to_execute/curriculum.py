"""How hard the next samples are, and when they get harder.

The state is part of the training's network state: it is saved with it, and is
the same on all devices. One update goes like this, inside the loss function:

  state = curriculum.advance(network_state)
  level = curriculum.level(state, key)                   # for each sample
  ...                                                    # draw, run the model
  network_state = curriculum.observe(state, loss, weight)

What `observe` keeps is this device's; the update averages it over the devices,
so that `advance`, at the start of the next update, sees the loss of the whole
batch and decides alike everywhere. So the level lags one update behind the
authors', who ask right after each loss.
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
  """What a curriculum remembers. W is the window.

  Attributes:
    level: the largest length and nesting that are drawn now.
    losses: [W] float32, mean losses of the updates at this level, newest last.
    num_losses: () int32, how many of them there are, from the end.
    pending_loss: () float32, of the last update, not yet in `losses`: its sum
      on this device, and after the update the mean over devices of the sums.
    pending_weight: () float32, what that is the sum over, likewise; 0 before
      the first update.
  """

  level: Difficulty
  losses: Array
  num_losses: Array
  pending_loss: Array
  pending_weight: Array


@dataclasses.dataclass(frozen=True)
class Curriculum:
  """One of four ways to draw length and nesting of a sample.

  'baseline': always the maxima. 'mix': uniform from 1 to the maxima (Santoro
  et al. 2018, appendix A.2). 'naive': the current level. 'combine': uniform
  from 1 to the current level. Length and nesting are drawn apart from each
  other.

  The current level begins at (1, 1). After W losses l_1 .. l_W at one level,

    mean_i(l_{i+1} - l_i) / mean_i(l_i) < threshold

  raises it by one and begins a new window; otherwise the window slides on. The
  length is raised up to its maximum, then the nesting; the length stays. This
  is the rule of the authors' code, `sonnet/examples/learn_to_execute.py`. A
  falling loss always passes, so that with a threshold above zero the level
  rises about every W updates.

  Departures: the level lags one update (see this file's first lines), and
  'mix' draws nesting up to its own maximum, as the paper says; one version of
  the authors' code draws it up to that of the length.

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
    rises = self.name in ('naive', 'combine')
    return CurriculumState(
      level=Difficulty(
        length=jnp.array(1 if rises else self.max_length, jnp.int32),
        nesting=jnp.array(1 if rises else self.max_nesting, jnp.int32),
      ),
      losses=jnp.zeros([self.window], jnp.float32),
      num_losses=jnp.array(0, jnp.int32),
      pending_loss=jnp.array(0.0, jnp.float32),
      pending_weight=jnp.array(0.0, jnp.float32),
    )

  def advance(self, state: CurriculumState) -> CurriculumState:
    """Takes in the last update's loss, and raises the level if it is time.

    Without a pending weight, as before the first update, nothing changes. A
    loss that is not finite raises nothing while it is in the window.
    """
    seen = state.pending_weight > 0
    # Not 0 / 0, which would stop a run under jax_debug_nans.
    loss = state.pending_loss / jnp.where(seen, state.pending_weight, 1.0)
    losses = jnp.append(state.losses[1:], loss)  # [W]
    num_losses = jnp.minimum(state.num_losses + 1, self.window)
    trend = jnp.diff(losses).mean() / losses.mean()
    passed = (num_losses == self.window) & (trend < self.threshold)
    longer = passed & (state.level.length < self.max_length)
    deeper = passed & ~longer & (state.level.nesting < self.max_nesting)
    advanced = CurriculumState(
      level=Difficulty(
        length=state.level.length + longer,
        nesting=state.level.nesting + deeper,
      ),
      losses=losses,
      num_losses=jnp.where(passed, 0, num_losses),
      pending_loss=jnp.zeros_like(state.pending_loss),
      pending_weight=jnp.zeros_like(state.pending_weight),
    )
    return jax.tree.map(
      lambda new, old: jnp.where(seen, new, old), advanced, state
    )

  def level(self, state: CurriculumState, key: Array) -> Difficulty:
    """The length and nesting of one sample, () int32 each; consumes `key`."""
    if self.name in ('baseline', 'naive'):
      return state.level
    length_key, nesting_key = jax.random.split(key)
    return Difficulty(
      length=jax.random.randint(length_key, (), 1, state.level.length + 1),
      nesting=jax.random.randint(nesting_key, (), 1, state.level.nesting + 1),
    )

  def observe(
    self, state: CurriculumState, loss: Array, weight: Array
  ) -> CurriculumState:
    """Keeps the summed loss of this device's samples and what it is over.

    Args:
      state: of this update, after `advance`.
      loss: [] summed loss, as a loss function returns it.
      weight: [] what it was summed over.

    Returns:
      The state to hand back as network state.
    """
    chex.assert_shape([loss, weight], ())
    return state._replace(
      pending_loss=jnp.asarray(loss, jnp.float32),
      pending_weight=jnp.asarray(weight, jnp.float32),
    )
