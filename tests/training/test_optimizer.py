"""Tests rmc_jax/training/optimizer.py against closed forms in NumPy."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from rmc_jax.errors import ConfigurationError
from rmc_jax.training.optimizer import clip_by_matrix_norm
from rmc_jax.training.optimizer import make_optimizer
from rmc_jax.training.optimizer import make_schedule
from rmc_jax.training.optimizer import OptimizerConfig

# Single float32 operations on numbers of size 1.
TOLERANCE = {'rtol': 2e-6}


def rates(config, steps):
  schedule = make_schedule(config)
  return np.array([schedule(jnp.asarray(step)) for step in steps])


def test_constant_schedule():
  np.testing.assert_array_equal(
    rates(OptimizerConfig(learning_rate=0.25), [0, 1, 10**6]), 0.25
  )


def test_authors_schedule_reaches_its_floor_at_step_21_180():
  config = OptimizerConfig(
    learning_rate=1e-4,
    schedule='exponential',
    decay_rate=0.9,
    decay_every=10_000,
    floor=8e-5,
  )
  steps = np.array([0, 5_000, 10_000, 21_179, 21_180, 1_000_000])
  expected = np.maximum(8e-5, 1e-4 * 0.9 ** (steps / 10_000))
  np.testing.assert_allclose(rates(config, steps), expected, **TOLERANCE)
  # The decay is smooth, and the floor is at the documented step.
  assert expected[1] < 1e-4
  assert expected[3] > 8e-5
  assert expected[4] == 8e-5


def test_staircase_decays_in_steps():
  config = OptimizerConfig(
    learning_rate=1.0,
    schedule='exponential',
    decay_rate=0.5,
    decay_every=10,
    staircase=True,
  )
  np.testing.assert_allclose(
    rates(config, [0, 9, 10, 19, 20]), [1, 1, 0.5, 0.5, 0.25], **TOLERANCE
  )


def test_cosine_decays_to_the_floor_and_stays():
  config = OptimizerConfig(
    learning_rate=0.5, schedule='cosine', decay_steps=12, floor=0.1
  )
  steps = np.arange(20)
  angle = np.pi * np.minimum(steps, 12) / 12
  # The cosine of a float32 angle is off by 1e-7 of the full swing.
  np.testing.assert_allclose(
    rates(config, steps), 0.1 + 0.4 * (1 + np.cos(angle)) / 2, rtol=1e-5
  )


def test_linear_decay_reaches_the_floor_and_stays():
  config = OptimizerConfig(
    learning_rate=0.5, schedule='linear', decay_steps=8, floor=0.1
  )
  np.testing.assert_allclose(
    rates(config, [0, 2, 8, 9, 20]), [0.5, 0.4, 0.1, 0.1, 0.1], **TOLERANCE
  )


@pytest.mark.parametrize(
  'options',
  [
    {'schedule': 'constant'},
    {'schedule': 'exponential', 'decay_every': 7},
    {'schedule': 'cosine', 'decay_steps': 7},
    {'schedule': 'linear', 'decay_steps': 7},
  ],
)
def test_warmup_is_linear_and_precedes_every_schedule(options):
  cold = OptimizerConfig(learning_rate=0.5, **options)
  warm = dataclasses.replace(cold, warmup_steps=4)
  np.testing.assert_allclose(
    rates(warm, range(4)), [0, 0.125, 0.25, 0.375], **TOLERANCE
  )
  np.testing.assert_allclose(
    rates(warm, range(4, 15)), rates(cold, range(11)), **TOLERANCE
  )


@pytest.mark.parametrize(
  'options',
  [
    {'schedule': 'constant'},
    {'schedule': 'exponential', 'decay_every': 7},
    {'schedule': 'cosine', 'decay_steps': 7},
    {'schedule': 'linear', 'decay_steps': 7},
  ],
)
def test_hold_keeps_the_rate_between_warmup_and_decay(options):
  plain = OptimizerConfig(learning_rate=0.5, **options)
  held = dataclasses.replace(plain, warmup_steps=2, hold_steps=3)
  np.testing.assert_allclose(
    rates(held, range(5)), [0, 0.25, 0.5, 0.5, 0.5], **TOLERANCE
  )
  np.testing.assert_allclose(
    rates(held, range(5, 16)), rates(plain, range(11)), **TOLERANCE
  )


def updates_of(config, gradients, params):
  """Returns the update of each gradient in turn, for fixed parameters."""
  optimizer = make_optimizer(config)
  state, updates = optimizer.init(params), []
  for gradient in gradients:
    update, state = optimizer.update(gradient, state, params)
    updates.append(jax.tree.map(np.asarray, update))
  return updates


GRADIENTS = [
  {'w': np.float32([[3.0, -4.0]]), 'b': np.float32([12.0])},
  {'w': np.float32([[0.1, 0.2]]), 'b': np.float32([-0.3])},
]
PARAMS = {'w': np.float32([[1.0, 1.0]]), 'b': np.float32([2.0])}


def test_adam_matches_algorithm_1_of_the_paper():
  config = OptimizerConfig(
    learning_rate=0.1, b1=0.8, b2=0.95, eps=0.5, eps_root=0.25
  )
  updates = updates_of(config, GRADIENTS, PARAMS)
  for name in PARAMS:
    m = v = 0.0
    for t, gradient in enumerate(GRADIENTS, start=1):
      g = gradient[name].astype(np.float64)
      m = 0.8 * m + 0.2 * g
      v = 0.95 * v + 0.05 * g**2
      m_hat, v_hat = m / (1 - 0.8**t), v / (1 - 0.95**t)
      np.testing.assert_allclose(
        updates[t - 1][name],
        -0.1 * m_hat / (np.sqrt(v_hat + 0.25) + 0.5),
        **TOLERANCE,
      )


def test_weight_decay_is_decoupled():
  plain = updates_of(OptimizerConfig(learning_rate=0.1), GRADIENTS, PARAMS)
  decayed = updates_of(
    OptimizerConfig(learning_rate=0.1, weight_decay=0.5), GRADIENTS, PARAMS
  )
  np.testing.assert_allclose(
    decayed[0]['b'] - plain[0]['b'], [-0.1 * 0.5 * 2.0], **TOLERANCE
  )


@pytest.mark.parametrize('in_sqrt', [True, False])
def test_rmsprop_initial_scale_and_epsilon(in_sqrt):
  config = OptimizerConfig(
    name='rmsprop',
    learning_rate=0.1,
    rmsprop_decay=0.9,
    rmsprop_momentum=0.5,
    rmsprop_eps_in_sqrt=in_sqrt,
    eps=0.1,
  )
  updates = updates_of(config, GRADIENTS, PARAMS)
  v, step = 1.0, 0.0
  for t, gradient in enumerate(GRADIENTS):
    g = gradient['w'].astype(np.float64)
    v = 0.9 * v + 0.1 * g**2
    root = np.sqrt(v + 0.1) if in_sqrt else np.sqrt(v) + 0.1
    step = 0.5 * step - 0.1 * g / root
    np.testing.assert_allclose(updates[t]['w'], step, **TOLERANCE)


def test_clipping_is_by_global_norm():
  """The norm of (3, -4) and 12 is 13; clipping by element changes direction."""
  # With b1 = b2 = 0 and a huge eps, Adam is gradient descent, -g / eps * rate.
  config = OptimizerConfig(
    learning_rate=1e6, b1=0.0, b2=0.0, eps=1e6, clip_global_norm=2.6
  )
  (update, small) = updates_of(config, GRADIENTS, PARAMS)
  # 1 + |g| / eps differs from 1 by up to 3e-6.
  np.testing.assert_allclose(-update['w'], [[0.6, -0.8]], rtol=5e-6)
  np.testing.assert_allclose(-update['b'], [2.4], rtol=5e-6)
  elementwise, _ = optax.clip(2.6).update(GRADIENTS[0], optax.EmptyState())
  assert not np.allclose(-update['w'], elementwise['w'], rtol=0.1)
  # A norm below the limit is not clipped.
  np.testing.assert_allclose(-small['w'], GRADIENTS[1]['w'], rtol=5e-6)


def test_no_clipping_by_default():
  config = OptimizerConfig(learning_rate=1e6, b1=0.0, b2=0.0, eps=1e6)
  update, _ = updates_of(config, GRADIENTS, PARAMS)
  # As above; 12 / eps is 1.2e-5.
  np.testing.assert_allclose(-update['b'], [12.0], rtol=2e-5)


@pytest.mark.parametrize(
  ('options', 'message'),
  [
    ({'name': 'sgd'}, r"name must be one of \('adam', 'rmsprop'\).*'sgd'"),
    ({'schedule': 'step'}, "schedule must be one of .*'step'"),
    ({'learning_rate': 0.0}, 'learning_rate must be positive. Got: 0.0'),
    ({'learning_rate': math.nan}, 'learning_rate .* nan'),
    ({'learning_rate': math.inf}, 'learning_rate .* inf'),
    ({'warmup_steps': -1}, 'warmup_steps must be 0 or more. Got: -1'),
    ({'hold_steps': -1}, 'hold_steps must be 0 or more. Got: -1'),
    ({'schedule': 'exponential', 'decay_rate': 1.0}, 'decay_rate .* 1.0'),
    ({'schedule': 'exponential', 'decay_every': 0}, 'decay_every .* Got: 0'),
    ({'schedule': 'cosine'}, 'decay_steps must be positive. Got: 0'),
    ({'schedule': 'linear'}, 'decay_steps must be positive. Got: 0'),
    (
      {'schedule': 'exponential', 'floor': 1.0},
      'floor must be from 0 to the learning rate, 0.0001. Got: 1.0',
    ),
    ({'floor': 1e-5}, 'floor must be left at 0 with a constant'),
    ({'clip_global_norm': 0.0}, 'clip_global_norm .* None. Got: 0.0'),
    ({'b1': 1.0}, r'b1 must be in \[0, 1\). Got: 1.0'),
    ({'b2': -0.1}, 'b2 must be'),
    ({'eps': -1.0}, 'eps must be 0 or more'),
    ({'eps_root': -1.0}, 'eps_root must be 0 or more'),
    ({'eps': 0.0}, 'eps must be positive if eps_root is 0. Got: 0.0'),
    ({'weight_decay': -1.0}, 'weight_decay must be 0 or more'),
    ({'name': 'rmsprop', 'weight_decay': 0.1}, "weight_decay .* 'adam'"),
    ({'rmsprop_decay': 1.0}, 'rmsprop_decay must be'),
    ({'rmsprop_momentum': 1.0}, 'rmsprop_momentum must be'),
    ({'rmsprop_initial_scale': -1.0}, 'rmsprop_initial_scale must be'),
  ],
)
def test_field_out_of_range_raises_with_its_value(options, message):
  with pytest.raises(ConfigurationError, match=f'optimizer.{message}'):
    make_optimizer(OptimizerConfig(**options))


@pytest.mark.parametrize('order', ['spectral', 'frobenius'])
def test_each_matrix_is_clipped_by_its_own_norm(order):
  generator = np.random.default_rng(0)
  gradients = {
    'wide': generator.normal(size=(3, 7)),
    'tall': generator.normal(size=(11, 5)),
    'small': generator.normal(size=(5, 2)),
  }
  wanted = {'wide': 80.0, 'tall': 40.1, 'small': 10.0}
  numpy_order = {'spectral': 2, 'frobenius': 'fro'}[order]
  gradients = {
    name: (g * wanted[name] / np.linalg.norm(g, numpy_order)).astype(np.float32)
    for name, g in gradients.items()
  }
  clip = clip_by_matrix_norm(40.0, order)
  clipped, _ = clip.update(gradients, clip.init(gradients))
  for name, gradient in gradients.items():
    factor = min(1.0, 40.0 / wanted[name])
    np.testing.assert_allclose(clipped[name], factor * gradient, rtol=1e-5)
  # The largest singular value is repeated in an orthogonal matrix.
  identity = {'wide': 80 * np.eye(3, dtype=np.float32)}
  clipped, _ = clip.update(identity, clip.init(identity))
  norm = np.linalg.norm(clipped['wide'], numpy_order)
  np.testing.assert_allclose(norm, 40.0, rtol=1e-6)
  # Above 40 in one norm only.
  identity = {'wide': 30 * np.eye(3, dtype=np.float32)}
  clipped, _ = clip.update(identity, clip.init(identity))
  largest = {'spectral': 30.0, 'frobenius': 40 / np.sqrt(3)}[order]
  np.testing.assert_allclose(clipped['wide'][0, 0], largest, rtol=1e-6)
  zero = {'wide': np.zeros((3, 7), np.float32)}
  assert not clip.update(zero, clip.init(zero))[0]['wide'].any()


def test_close_singular_values_have_the_largest_error():
  # With 49 values below the largest by a factor f, the squared norm is too
  # small by at most (1 - f) 49 f^8192 / (1 + 49 f^8192).
  factors = 1 - np.array([1e-4, 3e-4, 5e-4, 1e-3, 1e-2])
  clip = clip_by_matrix_norm(1.0)
  for factor in factors:
    values = np.full(50, 100 * np.sqrt(factor), np.float32)
    values[7] = 100
    clipped, _ = clip.update({'g': np.diag(values)}, clip.init({}))
    norm = np.abs(clipped['g']).max()
    assert 1 - 1e-5 <= norm <= 1 + 2e-4


def test_matrix_norms_need_matrices():
  with pytest.raises(ValueError, match='order must be one of spectral'):
    clip_by_matrix_norm(40.0, 'nuclear')
  clip = clip_by_matrix_norm(40.0)
  with pytest.raises(ValueError, match=r'shape \(3,\)'):
    clip.update({'b': jnp.ones(3)}, clip.init({}))
