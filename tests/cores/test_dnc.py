"""Tests one step of rmc_jax/cores/dnc.py; test_dnc_unroll.py tests sequences.

test_every_core.py has the tests of all cores.
"""

import functools

import haiku as hk
import jax
import jax.numpy as jnp
import jmp
import numpy as np
import pytest

import rmc_jax
from rmc_jax.cores.dnc import DNC
from tests.cores.small_dnc import assert_close
from tests.cores.small_dnc import B
from tests.cores.small_dnc import both_controllers
from tests.cores.small_dnc import FEATURES
from tests.cores.small_dnc import J
from tests.cores.small_dnc import LAYERS
from tests.cores.small_dnc import make
from tests.cores.small_dnc import make_double
from tests.cores.small_dnc import N
from tests.cores.small_dnc import OUT
from tests.cores.small_dnc import R
from tests.cores.small_dnc import reference_steps
from tests.cores.small_dnc import SIZES
from tests.cores.small_dnc import T
from tests.cores.small_dnc import W
from tests.cores.small_dnc import weighted_loss
from tests.cores.small_dnc import Y

POLICY = jmp.get_policy('params=float32,compute=bfloat16,output=float32')


@both_controllers
@pytest.mark.parametrize('clip_value', [0.6, None])
def test_step_equals_the_slot_by_slot_reference(controller, clip_value):
  net, params, inputs, state = make(controller, clip_value=clip_value)
  output, after = jax.jit(net.apply)(params, inputs, state)
  expected, expected_after = reference_steps(
    params, inputs[None], state, clip_value
  )
  assert_close((output, after), (expected[0], expected_after))
  assert output.shape == (B, OUT)
  # Some values are clipped.
  assert (np.abs(expected) == 0.6).any() == (clip_value is not None)


@both_controllers
def test_gradients_equal_finite_differences(controller):
  step_size, rng = 1e-6, np.random.default_rng(2)
  with jax.enable_x64(True):
    net, *args = make_double(controller, clip_value=20.0)
    loss = jax.jit(functools.partial(weighted_loss, net.apply))
    gradients = jax.jit(jax.grad(loss, argnums=(0, 1, 2)))(*args)
    for _ in range(3):
      along = [
        jax.tree.map(lambda x: rng.normal(size=x.shape), arg) for arg in args
      ]
      # Differences would include the stopped gradient.
      along[2].write_weights[:] = 0
      ahead, behind = (
        loss(*jax.tree.map(lambda x, d, h=h: x + h * d, args, along))
        for h in (step_size, -step_size)
      )
      slope = sum(
        np.vdot(g, d)
        for g, d in zip(
          jax.tree.leaves(gradients), jax.tree.leaves(along), strict=True
        )
      )
      # Curvature 1e-12, and rounding 1e-16 / 1e-6 of a loss of order 10.
      np.testing.assert_allclose(
        (ahead - behind) / (2 * step_size), slope, rtol=1e-6, atol=1e-6
      )


@both_controllers
def test_parameter_paths_and_shapes(controller):
  width = R * W + 3 * J * W + 2 * R + 3 * J + R * (2 * J + 1)
  if controller == 'lstm':
    seen = LAYERS * Y
    expected = {}
    for i in range(LAYERS):
      rows = R * W + Y * (2 if i else 1)
      expected[f'controller/input_{i}'] = {
        'w': (FEATURES, 4 * Y),
        'b': (4 * Y,),
      }
      expected[f'controller/recurrent_{i}'] = {'w': (rows, 4 * Y)}
  else:
    seen = Y
    expected = {
      'controller/input': {'w': (FEATURES, Y), 'b': (Y,)},
      'controller/feedback': {'w': (R * W, Y)},
      'controller/linear_1': {'w': (Y, Y), 'b': (Y,)},
      'controller/linear_2': {'w': (Y, Y), 'b': (Y,)},
    }
  expected |= {
    'interface': {'w': (seen, width), 'b': (width,)},
    'output': {'w': (seen + R * W, OUT), 'b': (OUT,)},
  }
  expected = {f'dnc/{k}': v for k, v in expected.items()}
  assert jax.tree.map(jnp.shape, make(controller)[1]) == expected
  unrolled = make(controller, rmc_jax.unroll, lead=(T, B))[1]
  assert jax.tree.map(jnp.shape, unrolled) == expected


@pytest.mark.parametrize(
  'controller, hidden_size, count',
  [
    ('lstm', 128, 692_567),
    ('lstm', 256, 1_843_415),
    ('lstm', 512, 5_521_367),
    ('feed_forward', 128, 165_207),
    ('feed_forward', 256, 395_479),
    ('feed_forward', 512, 1_052_631),
  ],
)
def test_parameter_counts_at_paper_sizes(controller, hidden_size, count):
  def step(inputs):
    core = DNC(controller=controller, hidden_size=hidden_size)
    return core(inputs, core.initial_state(1))

  params = jax.eval_shape(
    hk.transform(step).init, jax.random.key(0), jnp.zeros((1, 45))
  )
  assert params['dnc/interface']['b'].shape == (471,)
  assert params['dnc/output']['b'].shape == (hidden_size,)
  assert sum(leaf.size for leaf in jax.tree.leaves(params)) == count


@both_controllers
def test_split_weights_start_like_one_joint_weight(controller):
  def step(x):
    core = DNC(**{**SIZES, 'hidden_size': 400}, controller=controller)
    return core(x, core.initial_state(1))

  init = jax.jit(hk.transform(step).init)
  params = init(jax.random.key(0), jnp.ones((1, 200)))
  name = 'recurrent_0' if controller == 'lstm' else 'feedback'
  first = 'input_0' if controller == 'lstm' else 'input'
  rows = [params[f'dnc/controller/{p}']['w'] for p in (first, name)]
  fan_in = sum(len(w) for w in rows)
  for w in rows:
    # A normal truncated at two standard deviations has spread 0.8796;
    # 6,000 draws or more, five standard errors.
    spread = np.std(w) * np.sqrt(fan_in)
    assert abs(spread - 0.8796) < 5 * 0.88 / np.sqrt(w.size)


@pytest.mark.parametrize(
  'kwargs, error, message',
  [
    ({'memory_size': 0}, ValueError, 'memory_size must be at least 1. Got: 0'),
    ({'word_size': -1}, ValueError, 'word_size must be at least 1. Got: -1'),
    ({'num_reads': 0}, ValueError, 'num_reads must be at least 1. Got: 0'),
    ({'num_writes': 0}, ValueError, 'num_writes must be at least 1. Got: 0'),
    ({'hidden_size': 0}, ValueError, 'hidden_size must be at least 1. Got: 0'),
    ({'num_layers': 0}, ValueError, 'num_layers must be at least 1. Got: 0'),
    ({'output_size': 0}, ValueError, 'output_size must be at least 1. Got: 0'),
    ({'word_size': 1.5}, TypeError, 'word_size must be an integer. Got: 1.5'),
    ({'controller': 'gru'}, ValueError, "controller must be one of .*'gru'"),
    ({'clip_value': 0}, ValueError, 'clip_value must be > 0.* Got: 0'),
    ({'clip_value': -2.0}, ValueError, r'clip_value must be > 0.* Got: -2\.0'),
    ({'clip_value': np.nan}, ValueError, 'clip_value must be > 0.* Got: nan'),
  ],
)
def test_refuses_bad_arguments(kwargs, error, message):
  with pytest.raises(error, match=message):
    make(**kwargs)


def test_refuses_mismatched_shapes():
  net, params, inputs, state = make()
  with pytest.raises(TypeError, match='int32.*one-hot'):
    net.apply(params, jnp.zeros((B, FEATURES), jnp.int32), state)
  with pytest.raises(ValueError, match=r'\(3, 13\), expected \[4, features'):
    net.apply(params, jnp.zeros((3, FEATURES)), state)
  for wrong in (
    state._replace(usage=jnp.zeros((B, N + 1))),
    state._replace(memory=jnp.zeros((N, W))),
    state._replace(controller=()),
    jax.tree.map(lambda s: s[None], state),
    state.memory,
    (),
  ):
    with pytest.raises(ValueError, match='the state has shapes .*expected DNC'):
      net.apply(params, inputs, wrong)
  with pytest.raises(ValueError, match=r'usage=\(4, 8\).* usage=\(4, 7\)'):
    net.apply(params, inputs, state._replace(usage=jnp.zeros((B, N + 1))))


@both_controllers
def test_policy_applies_to_layers_and_addressing_stays_in_float32(controller):
  net, params, inputs, state = make(controller, rmc_jax.unroll, lead=(T, B))
  exact, _ = jax.jit(net.apply)(params, inputs, state)
  with hk.mixed_precision.push_policy(DNC, POLICY):
    fresh = jax.eval_shape(net.init, jax.random.key(0), inputs, state)
    # A new function, as JAX caches traces without regard to policies.
    program = jax.jit(lambda *args: net.apply(*args))
    output, after = program(params, inputs, state)
    found = set(products(jax.make_jaxpr(program)(params, inputs, state).jaxpr))
  for leaf in jax.tree.leaves((fresh, output, after)):
    assert leaf.dtype == np.float32
  highest = (jax.lax.Precision.HIGHEST,) * 2
  assert found == {
    ('bfloat16', 'bfloat16', None),
    ('float32', 'float32', highest),
  }
  # bfloat16 factors keep 8 bits, 0.4 %, of terms of order 1 over a few steps.
  np.testing.assert_allclose(output, exact, atol=0.2)
  assert np.abs(output - exact).max() > 1e-4


def products(jaxpr):
  """Returns the dtypes and the precision of every matrix product."""
  for eqn in jaxpr.eqns:
    if eqn.primitive.name == 'dot_general':
      yield (*(str(v.aval.dtype) for v in eqn.invars), eqn.params['precision'])
    for value in eqn.params.values():
      for inner in value if isinstance(value, tuple) else (value,):
        inner = getattr(inner, 'jaxpr', inner)
        if hasattr(inner, 'eqns'):
          yield from products(inner)
