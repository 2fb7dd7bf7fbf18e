"""Tests rmc_jax/tasks/learn_to_execute/curriculum.py."""

import collections
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rmc_jax.tasks.learn_to_execute.curriculum import Curriculum
from rmc_jax.tasks.learn_to_execute.curriculum import NAMES
from rmc_jax.tasks.learn_to_execute.sample import Difficulty

LENGTH, NESTING, WINDOW = 5, 3, 4
SAMPLES = 4000
NAIVE = Curriculum('naive', LENGTH, NESTING, window=WINDOW)


class Reference:
  """The rule, one Python number at a time."""

  def __init__(self, curriculum):
    self.difficulty = [1, 1]
    self.maxima = [curriculum.max_length, curriculum.max_nesting]
    self.threshold = curriculum.threshold
    self.losses = collections.deque(maxlen=curriculum.window)

  def update(self, loss):
    self.losses.append(float(loss))
    if len(self.losses) < self.losses.maxlen:
      return tuple(self.difficulty)
    losses = np.array(self.losses)
    with np.errstate(invalid='ignore'):
      changes = losses[1:] - losses[:-1]
      trend = np.mean(changes) / np.mean(losses)
    if trend < self.threshold:
      self.losses.clear()
      for i in (0, 1):
        if self.difficulty[i] < self.maxima[i]:
          self.difficulty[i] += 1
          break
    return tuple(self.difficulty)


def reference_difficulties(curriculum, losses):
  reference = Reference(curriculum)
  return [reference.update(loss) for loss in losses]


def difficulties(curriculum, losses):
  """The difficulty after each of the losses [..., T]: lengths and nestings."""
  losses = jnp.asarray(losses, jnp.float32)

  def step(state, loss):
    state = curriculum.update(state, loss)
    return state, state.difficulty

  def scan(losses):
    return jax.lax.scan(step, curriculum.initial_state(), losses)[1]

  for _ in losses.shape[:-1]:
    scan = jax.vmap(scan)
  return jax.jit(scan)(losses)


@pytest.mark.parametrize('window', [2, 4, 10])
@pytest.mark.parametrize('threshold', [0.1, 0.0, -0.05])
def test_difficulties_equal_the_reference(threshold, window):
  curriculum = dataclasses.replace(NAIVE, threshold=threshold, window=window)
  rng = np.random.default_rng(0)
  # Curves that fall, stay or rise, from quiet to noisy.
  slopes = rng.uniform(-0.1, 0.4, size=(120, 1))
  noise = rng.uniform(0.0, 0.6, size=(120, 1)) * rng.normal(size=(120, 70))
  losses = np.exp(slopes * np.arange(70) + noise).astype(np.float32)
  losses[rng.uniform(size=losses.shape) < 0.01] = np.nan
  losses[rng.uniform(size=losses.shape) < 0.01] = np.inf
  expected = np.array(
    [reference_difficulties(curriculum, row) for row in losses]
  )
  length, nesting = difficulties(curriculum, losses)
  np.testing.assert_array_equal(length, expected[..., 0])
  np.testing.assert_array_equal(nesting, expected[..., 1])
  # Some stay near the minimum and some reach the maxima.
  assert expected[:, -1].sum(-1).min() <= 3
  assert tuple(expected[:, -1].max(0)) == (LENGTH, NESTING)


def test_length_increases_before_nesting():
  losses = 1 / np.arange(1, 40)
  length, nesting = difficulties(NAIVE, losses)
  order = [(1, 1), (2, 1), (3, 1), (4, 1), (5, 1), (5, 2), (5, 3)]
  expected = [order[min((i + 1) // WINDOW, 6)] for i in range(len(losses))]
  assert list(zip(length.tolist(), nesting.tolist(), strict=True)) == expected


def test_a_steeply_rising_loss_keeps_the_difficulty():
  length, nesting = difficulties(NAIVE, 2.0 ** np.arange(30))
  assert (length.max(), nesting.max()) == (1, 1)


def test_the_window_slides_until_it_passes_and_then_restarts():
  # Rises too much within 1..8 and 2..10 but not within 4..9.5.
  losses = [1.0, 2.0, 4.0, 8.0, 10.0, 9.5, 9.5, 9.5, 9.5, 9.5]
  length, _ = difficulties(NAIVE, losses)
  assert length.tolist() == [1, 1, 1, 1, 1, 1, 2, 2, 2, 2]
  length, _ = difficulties(dataclasses.replace(NAIVE, threshold=0.24), losses)
  assert length.tolist() == [1, 1, 1, 1, 1, 2, 2, 2, 2, 3]


@pytest.mark.parametrize('bad', [np.nan, np.inf, -np.inf])
def test_a_nonfinite_loss_in_the_window_keeps_the_difficulty(bad):
  for position in range(WINDOW):
    losses = np.ones(2 * WINDOW)
    losses[position] = bad
    length, _ = difficulties(NAIVE, losses)
    first = WINDOW + position  # the first window without it
    assert length.tolist() == [1] * first + [2] * (2 * WINDOW - first)


@pytest.mark.parametrize('num_devices', [1, 2, 4])
def test_all_devices_have_the_difficulty_of_the_mean_over_all(num_devices):
  steps, batch = 30, 8
  rng = np.random.default_rng(1)
  losses = np.exp(0.2 * rng.normal(size=(steps, batch)).cumsum(0))
  weights = rng.integers(0, 5, size=(steps, batch))

  def step(state, losses, weights):
    sums = jnp.sum(losses * weights), jnp.sum(weights)
    loss, weight = jax.lax.psum(sums, 'devices')
    return NAIVE.update(state, loss / weight)

  update = jax.pmap(step, axis_name='devices')
  state = jax.tree.map(
    lambda x: jnp.stack([x] * num_devices), NAIVE.initial_state()
  )
  seen = []
  for loss, weight in zip(losses, weights, strict=True):
    state = update(
      state,
      loss.astype(np.float32).reshape(num_devices, -1),
      weight.astype(np.float32).reshape(num_devices, -1),
    )
    for leaf in jax.tree.leaves(state):
      np.testing.assert_array_equal(leaf, np.stack([leaf[0]] * num_devices))
    seen.append(tuple(int(x[0]) for x in state.difficulty))
  means = (losses * weights).sum(1) / weights.sum(1)
  assert seen == reference_difficulties(NAIVE, means)
  assert seen[-1][0] > 2
  # One device alone would decide otherwise.
  assert seen != reference_difficulties(NAIVE, losses[:, 0])


@pytest.mark.parametrize(
  'name, difficulty, most',
  [
    ('baseline', (1, 1), (5, 3)),
    ('mix', (1, 1), (5, 3)),
    ('naive', (2, 1), (2, 1)),
    ('naive', (5, 2), (5, 2)),
    ('combine', (4, 1), (4, 1)),
    ('combine', (5, 3), (5, 3)),
  ],
)
def test_samples_are_drawn_as_documented(name, difficulty, most):
  curriculum = dataclasses.replace(NAIVE, name=name)
  state = curriculum.initial_state()
  if name in ('naive', 'combine'):
    state = state._replace(difficulty=Difficulty(*map(jnp.int32, difficulty)))
  keys = jax.random.split(jax.random.key(0), SAMPLES)
  drawn = jax.jit(jax.vmap(curriculum.sample_difficulty, (None, 0)))(
    state, keys
  )
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


def test_length_and_nesting_are_independent():
  # With equal maxima, numbers drawn from one key would be equal.
  curriculum = Curriculum('mix', 4, 4)
  keys = jax.random.split(jax.random.key(0), SAMPLES)
  drawn = jax.vmap(curriculum.sample_difficulty, (None, 0))(
    curriculum.initial_state(), keys
  )
  assert abs(np.corrcoef(*drawn)[0, 1]) < 5 / np.sqrt(SAMPLES)


@pytest.mark.parametrize('name', NAMES)
def test_first_difficulty_and_whether_it_increases(name):
  curriculum = dataclasses.replace(NAIVE, name=name)
  first = tuple(map(int, curriculum.initial_state().difficulty))
  length, nesting = difficulties(curriculum, 1 / np.arange(1, 2 * WINDOW))
  last = (int(length[-1]), int(nesting[-1]))
  increases = name in ('naive', 'combine')
  assert (first, last) == (((1, 1), (2, 1)) if increases else ((5, 3), (5, 3)))


def test_update_keeps_dtypes_and_shapes():
  state = NAIVE.initial_state()
  after = NAIVE.update(state, jnp.bfloat16(2.0))
  for new, old in zip(
    jax.tree.leaves(after), jax.tree.leaves(state), strict=True
  ):
    assert (new.dtype, new.shape) == (old.dtype, old.shape)
    assert not new.weak_type
    assert not old.weak_type


@pytest.mark.parametrize(
  'fields, message',
  [
    ({'name': 'blend'}, "curriculum must be one of .*combine.* 'blend'"),
    ({'max_length': 0}, 'max_length must be at least 1. Got: 0'),
    ({'max_nesting': -2}, 'max_nesting must be at least 1. Got: -2'),
    ({'window': 1}, 'window must be at least 2. Got: 1'),
    ({'threshold': float('nan')}, 'threshold must be a finite number. .* nan'),
    ({'threshold': 'low'}, "threshold must be a finite number. .* 'low'"),
  ],
)
def test_invalid_settings_are_errors(fields, message):
  with pytest.raises(ValueError, match=message):
    dataclasses.replace(NAIVE, **fields)


def test_a_loss_with_an_axis_is_refused():
  with pytest.raises(AssertionError, match='shape'):
    NAIVE.update(NAIVE.initial_state(), jnp.ones(3))
