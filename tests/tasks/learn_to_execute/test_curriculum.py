"""Tests rmc_jax/tasks/learn_to_execute/curriculum.py."""

import collections
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from rmc_jax.tasks.learn_to_execute.curriculum import Curriculum
from rmc_jax.tasks.learn_to_execute.curriculum import NAMES
from rmc_jax.tasks.learn_to_execute.sample import Difficulty
from rmc_jax.training import parallel
from rmc_jax.training.state import create_state
from rmc_jax.training.update import LossAux
from rmc_jax.training.update import make_update

LENGTH, NESTING, WINDOW = 5, 3, 4
SAMPLES = 4000
NAIVE = Curriculum('naive', LENGTH, NESTING, window=WINDOW)


class Reference:
  """The rule, one Python number at a time."""

  def __init__(self, curriculum):
    self.level = [1, 1]
    self.maxima = [curriculum.max_length, curriculum.max_nesting]
    self.threshold = curriculum.threshold
    self.losses = collections.deque(maxlen=curriculum.window)

  def update(self, loss):
    self.losses.append(float(loss))
    if len(self.losses) < self.losses.maxlen:
      return tuple(self.level)
    losses = np.array(self.losses)
    with np.errstate(invalid='ignore'):
      changes = losses[1:] - losses[:-1]
      trend = np.mean(changes) / np.mean(losses)
    if trend < self.threshold:
      self.losses.clear()
      for i in (0, 1):
        if self.level[i] < self.maxima[i]:
          self.level[i] += 1
          break
    return tuple(self.level)


def reference_levels(curriculum, losses):
  reference = Reference(curriculum)
  return [reference.update(loss) for loss in losses]


def levels(curriculum, losses, weights=None):
  """The level after each of the losses [..., T], ([..., T], [..., T])."""
  losses = jnp.asarray(losses, jnp.float32)
  weights = jnp.ones_like(losses) if weights is None else weights

  def step(state, loss_and_weight):
    state = curriculum.advance(curriculum.observe(state, *loss_and_weight))
    return state, state.level

  def scan(losses, weights):
    return jax.lax.scan(step, curriculum.initial_state(), (losses, weights))[1]

  for _ in losses.shape[:-1]:
    scan = jax.vmap(scan)
  return jax.jit(scan)(losses, weights)


@pytest.mark.parametrize('window', [2, 4, 10])
@pytest.mark.parametrize('threshold', [0.1, 0.0, -0.05])
def test_levels_equal_those_of_the_rule(threshold, window):
  curriculum = dataclasses.replace(NAIVE, threshold=threshold, window=window)
  rng = np.random.default_rng(0)
  # Curves that fall, stay or rise, from quiet to noisy.
  slopes = rng.uniform(-0.1, 0.4, size=(120, 1))
  noise = rng.uniform(0.0, 0.6, size=(120, 1)) * rng.normal(size=(120, 70))
  losses = np.exp(slopes * np.arange(70) + noise).astype(np.float32)
  losses[rng.uniform(size=losses.shape) < 0.01] = np.nan
  losses[rng.uniform(size=losses.shape) < 0.01] = np.inf
  expected = np.array([reference_levels(curriculum, row) for row in losses])
  length, nesting = levels(curriculum, losses)
  np.testing.assert_array_equal(length, expected[..., 0])
  np.testing.assert_array_equal(nesting, expected[..., 1])
  # Some end early in the climb and some at the top.
  assert expected[:, -1].sum(-1).min() <= 3
  assert tuple(expected[:, -1].max(0)) == (LENGTH, NESTING)


def test_length_rises_first_then_nesting_then_nothing():
  losses = 1 / np.arange(1, 40)
  length, nesting = levels(NAIVE, losses)
  climb = [(1, 1), (2, 1), (3, 1), (4, 1), (5, 1), (5, 2), (5, 3)]
  expected = [climb[min((i + 1) // WINDOW, 6)] for i in range(len(losses))]
  assert list(zip(length.tolist(), nesting.tolist(), strict=True)) == expected


def test_a_steeply_rising_loss_raises_nothing():
  length, nesting = levels(NAIVE, 2.0 ** np.arange(30))
  assert (length.max(), nesting.max()) == (1, 1)


def test_the_window_slides_until_it_passes_and_then_begins_anew():
  # Rises too much within 1..8 and 2..10 but not within 4..9.5.
  losses = [1.0, 2.0, 4.0, 8.0, 10.0, 9.5, 9.5, 9.5, 9.5, 9.5]
  length, _ = levels(NAIVE, losses)
  assert length.tolist() == [1, 1, 1, 1, 1, 1, 2, 2, 2, 2]
  length, _ = levels(dataclasses.replace(NAIVE, threshold=0.24), losses)
  assert length.tolist() == [1, 1, 1, 1, 1, 2, 2, 2, 2, 3]


@pytest.mark.parametrize('bad', [np.nan, np.inf, -np.inf])
def test_a_loss_that_is_not_finite_raises_nothing_while_it_is_there(bad):
  for position in range(WINDOW):
    losses = np.ones(2 * WINDOW)
    losses[position] = bad
    length, _ = levels(NAIVE, losses)
    first = WINDOW + position  # the first window without it
    assert length.tolist() == [1] * first + [2] * (2 * WINDOW - first)


def test_without_a_weight_nothing_changes():
  state = NAIVE.initial_state()
  assert_equal(NAIVE.advance(state), state)
  losses = 1 / np.arange(1, 30)
  weights = jnp.ones_like(losses).at[WINDOW - 1 : 20].set(0.0)
  length, _ = levels(NAIVE, losses, weights)
  assert length[18] == 1
  assert length[20] == 2


def test_the_loss_that_counts_is_the_mean():
  # The sums fall and the means rise, by more than the threshold.
  losses, weights = jnp.array([64.0, 32, 16, 8]), jnp.array([64.0, 16, 4, 1])
  length, _ = levels(NAIVE, losses, weights)
  assert length[-1] == 1
  length, _ = levels(NAIVE, losses)
  assert length[-1] == 2


def test_pending_sums_averaged_over_devices_give_the_global_decision():
  # Each device alone, and the mean of its means, would decide otherwise.
  losses = np.array([[1.0, 1, 1, 1], [1.0, 2, 4, 8]])
  for weights, expected in (([30.0, 1.0], 2), ([1.0, 30.0], 1)):
    state = NAIVE.initial_state()
    for step in range(WINDOW):
      seen = [
        NAIVE.observe(NAIVE.advance(state), loss * weight, weight)
        for loss, weight in zip(losses[:, step], weights, strict=True)
      ]
      state = jax.tree.map(lambda a, b: (a + b) / 2, *seen)
      state = jax.tree.map(
        lambda leaf, like: leaf.astype(like.dtype), state, seen[0]
      )
    assert NAIVE.advance(state).level.length == expected


@pytest.mark.parametrize('num_devices', [1, 2, 4])
def test_in_training_all_devices_hold_the_level_of_the_whole_batch(num_devices):
  steps, batch = 30, 8
  rng = np.random.default_rng(1)
  losses = np.exp(0.2 * rng.normal(size=(steps, batch)).cumsum(0))
  weights = rng.integers(0, 5, size=(steps, batch))
  losses[9, 2] = np.nan  # this update is not applied
  weights[9, 2] = 1

  def loss_fn(params, network_state, key, batch):
    del key
    state = NAIVE.advance(network_state)
    loss = params * jnp.sum(batch['loss'] * batch['weight'])
    weight = jnp.sum(batch['weight'])
    return loss, LossAux(weight, {}, NAIVE.observe(state, loss, weight))

  devices = jax.devices()[:num_devices]
  optimizer = optax.sgd(0.0)
  update = make_update(
    loss_fn, optimizer, global_batch_size=batch, devices=devices
  )
  state = parallel.place_state(
    create_state(
      jnp.ones(()), NAIVE.initial_state(), optimizer, jax.random.key(0)
    ),
    devices,
  )
  seen = []
  for loss, weight in zip(losses, weights, strict=True):
    share = {'loss': np.float32(loss), 'weight': np.float32(weight)}
    state, _ = update(state, parallel.split_batch(share, devices))
    seen.append(tuple(map(int, state.network_state.level)))
  parallel.assert_replicated(state, devices)
  means = (losses * weights).sum(1) / weights.sum(1)
  expected = reference_levels(NAIVE, means[np.arange(steps) != 9])
  # One update behind, and so twice the same where nothing was applied.
  expected = [(1, 1), *expected]
  assert seen == expected[:9] + expected[8:-1]
  assert seen[-1][0] > 2


@pytest.mark.parametrize(
  'name, level, most',
  [
    ('baseline', (1, 1), (5, 3)),
    ('mix', (1, 1), (5, 3)),
    ('naive', (2, 1), (2, 1)),
    ('naive', (5, 2), (5, 2)),
    ('combine', (4, 1), (4, 1)),
    ('combine', (5, 3), (5, 3)),
  ],
)
def test_samples_are_drawn_as_the_name_says(name, level, most):
  curriculum = dataclasses.replace(NAIVE, name=name)
  state = curriculum.initial_state()
  if name in ('naive', 'combine'):
    state = state._replace(level=Difficulty(*map(jnp.int32, level)))
  keys = jax.random.split(jax.random.key(0), SAMPLES)
  drawn = jax.jit(jax.vmap(curriculum.level, (None, 0)))(state, keys)
  assert all(
    leaf.shape == (SAMPLES,) and leaf.dtype == jnp.int32 for leaf in drawn
  )
  if name in ('baseline', 'naive'):
    np.testing.assert_array_equal(drawn.length, most[0])
    np.testing.assert_array_equal(drawn.nesting, most[1])
    return
  for values, highest in zip(drawn, most, strict=True):
    counts = np.bincount(values, minlength=highest + 1)
    assert counts[0] == 0
    assert len(counts) == highest + 1
    # Binomial with p = 1 / highest: 5 standard deviations.
    share = SAMPLES / highest
    assert abs(counts[1:] - share).max() <= 5 * np.sqrt(share)


def test_length_and_nesting_know_nothing_of_each_other():
  # Equal maxima: numbers drawn from one key would be equal, too.
  curriculum = Curriculum('mix', 4, 4)
  keys = jax.random.split(jax.random.key(0), SAMPLES)
  drawn = jax.vmap(curriculum.level, (None, 0))(
    curriculum.initial_state(), keys
  )
  assert abs(np.corrcoef(*drawn)[0, 1]) < 5 / np.sqrt(SAMPLES)


@pytest.mark.parametrize('name', NAMES)
def test_where_a_curriculum_begins_and_whether_it_rises(name):
  curriculum = dataclasses.replace(NAIVE, name=name)
  first = tuple(map(int, curriculum.initial_state().level))
  length, nesting = levels(curriculum, 1 / np.arange(1, 2 * WINDOW))
  last = (int(length[-1]), int(nesting[-1]))
  rises = name in ('naive', 'combine')
  assert (first, last) == (((1, 1), (2, 1)) if rises else ((5, 3), (5, 3)))


def test_the_state_keeps_its_types():
  state = NAIVE.initial_state()
  after = NAIVE.advance(NAIVE.observe(state, jnp.bfloat16(2.0), jnp.int32(1)))
  for new, old in zip(
    jax.tree.leaves(after), jax.tree.leaves(state), strict=True
  ):
    assert (new.dtype, new.shape) == (old.dtype, old.shape)
    assert not new.weak_type
    assert not old.weak_type


@pytest.mark.parametrize(
  'fields, message',
  [
    ({'name': 'blend'}, "curriculum must be one of .*'combine'.* 'blend'"),
    ({'max_length': 0}, 'max_length must be at least 1. Got: 0'),
    ({'max_nesting': -2}, 'max_nesting must be at least 1. Got: -2'),
    ({'window': 1}, 'window must be at least 2, .* Got: 1'),
    ({'threshold': float('nan')}, 'threshold must be a finite number. .* nan'),
    ({'threshold': 'low'}, "threshold must be a finite number. .* 'low'"),
  ],
)
def test_what_a_curriculum_refuses_is_said(fields, message):
  with pytest.raises(ValueError, match=message):
    dataclasses.replace(NAIVE, **fields)


def test_a_loss_with_an_axis_is_refused():
  with pytest.raises(AssertionError, match='shape'):
    NAIVE.observe(NAIVE.initial_state(), jnp.ones(3), jnp.ones(()))


def assert_equal(a, b):
  jax.tree.map(np.testing.assert_array_equal, a, b)
