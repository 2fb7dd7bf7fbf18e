"""Tests rmc_jax/parity/convert.py and names.py."""

import contextlib
import itertools

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rmc_jax import RelationalMemory
from rmc_jax.parity.convert import from_sonnet
from rmc_jax.parity.convert import select_core
from rmc_jax.parity.convert import to_sonnet
from rmc_jax.parity.names import name_table
from rmc_jax.parity.names import Structure

# D = 35, F = 145 and 2 * G = 70 or 2: no two sizes of the core coincide.
B, N, H, V, K, FEATURES = 2, 3, 5, 7, 11, 13

# Variables of the original with two blocks, in its order, printed by it.
SONNET_NAMES_OF_TWO_BLOCKS = [
  'linear/w', 'linear/b',
  'linear_1/w', 'linear_1/b',
  'layer_norm/gamma', 'layer_norm/beta',
  'layer_norm_1/gamma', 'layer_norm_1/beta',
  'mlp/linear_0/w', 'mlp/linear_0/b',
  'mlp/linear_1/w', 'mlp/linear_1/b',
  'layer_norm_2/gamma', 'layer_norm_2/beta',
  'linear_2/w', 'linear_2/b',
  'layer_norm_3/gamma', 'layer_norm_3/beta',
  'layer_norm_4/gamma', 'layer_norm_4/beta',
  'layer_norm_5/gamma', 'layer_norm_5/beta',
  'linear_3/w', 'linear_3/b',
  'linear_4/w', 'linear_4/b',
]  # fmt: skip

CONFIGURATIONS = {
  'two blocks': {'num_blocks': 2},
  'one block, one layer': {'attention_mlp_layers': 1},
  'three blocks, three layers': {'num_blocks': 3, 'attention_mlp_layers': 3},
  'gates for slots': {'gate_style': 'memory'},
  'no gates': {'gate_style': None, 'num_blocks': 2},
  'key as large as value': {'key_size': None},
}


def make_params(rows=None, path='relational_memory', **options):
  """Parameters of the core, every entry a different number."""
  *scopes, name = path.split('/')
  options = {'key_size': K, 'name': name, **options}

  def step(inputs):
    with contextlib.ExitStack() as stack:
      for scope in scopes:
        stack.enter_context(hk.name_scope(scope))
      core = RelationalMemory(N, V, H, **options)
    return core(inputs, core.initial_state(B), rows is not None)

  inputs = jnp.zeros([B, FEATURES] if rows is None else [B, rows, FEATURES])
  shapes = jax.eval_shape(hk.transform(step).init, jax.random.key(0), inputs)
  start = itertools.count(0, 10**5)
  return jax.tree.map(
    lambda x: next(start) + np.arange(x.size, dtype='f4').reshape(x.shape),
    shapes,
  )


def assert_equal(left, right):
  assert sorted(left) == sorted(right)
  jax.tree.map(np.testing.assert_array_equal, dict(left), dict(right))


@pytest.mark.parametrize('options', CONFIGURATIONS.values(), ids=CONFIGURATIONS)
def test_round_trip_is_exact(options):
  params = make_params(**options)
  variables = to_sonnet(params)
  assert len(variables) == len(jax.tree.leaves(params))
  assert_equal(from_sonnet(variables), params)
  assert_equal(to_sonnet(from_sonnet(variables)), variables)


def test_names_and_order_equal_the_original():
  names = list(to_sonnet(make_params(num_blocks=2)))
  prefix = 'relational_memory/'
  assert names == [prefix + name for name in SONNET_NAMES_OF_TWO_BLOCKS]


@pytest.mark.parametrize(
  ('sonnet', 'module', 'parameter'),
  [
    ('linear/w', 'input', 'w'),
    ('linear_1/w', 'attention_0/qkv', 'w'),
    ('layer_norm/gamma', 'attention_0/qkv_norm', 'scale'),
    ('layer_norm/beta', 'attention_0/qkv_norm', 'offset'),
    ('layer_norm_1/gamma', 'attention_0/attention_norm', 'scale'),
    ('layer_norm_2/gamma', 'attention_0/mlp_norm', 'scale'),
    ('mlp/linear_1/b', 'mlp/linear_1', 'b'),
    ('linear_2/b', 'attention_1/qkv', 'b'),
    ('layer_norm_3/beta', 'attention_1/qkv_norm', 'offset'),
    ('layer_norm_5/beta', 'attention_1/mlp_norm', 'offset'),
    ('linear_3/w', 'input_gates', 'w'),
    ('linear_4/w', 'memory_gates', 'w'),
  ],
)
def test_each_variable_maps_to_its_layer(sonnet, module, parameter):
  params = make_params(num_blocks=2)
  np.testing.assert_array_equal(
    to_sonnet(params)[f'relational_memory/{sonnet}'],
    params[f'relational_memory/{module}'][parameter],
  )


def test_table_has_no_duplicates():
  table = name_table(Structure(num_blocks=3, mlp_layers=4, gated=True))
  for column in zip(*table, strict=True):
    assert len(set(column)) == len(column) == 2 * (1 + 3 + 3 * 3 + 4 + 2)


def test_input_gates_of_matrix_inputs_have_all_rows():
  params = make_params(rows=4, gate_style='memory')
  variables = to_sonnet(params)
  assert variables['relational_memory/linear_2/w'].shape == (4 * H * V, 2)
  assert_equal(from_sonnet(variables), params)


@pytest.mark.parametrize(
  'scope', ['', 'core', 'model/rnn/relational_memory', 'mlp/linear/core']
)
def test_any_scope(scope):
  params = make_params()
  variables = to_sonnet(params, scope)
  assert all(name.startswith(scope) for name in variables)
  assert_equal(from_sonnet(variables), params)
  assert_equal(from_sonnet(variables, scope), params)


def test_tensor_names():
  variables = to_sonnet(make_params())
  tensors = {f'{name}:0': value for name, value in variables.items()}
  assert_equal(from_sonnet(tensors), from_sonnet(variables))


@pytest.mark.parametrize(
  'path', ['memory', 'agent/relational_memory', 'agent/torso/memory']
)
def test_any_haiku_path(path):
  params = make_params(path=path)
  variables = to_sonnet(params)
  assert 'relational_memory/linear/w' in variables
  assert_equal(from_sonnet(variables, name=path), params)
  assert_equal(to_sonnet(params, name=path), variables)


@pytest.mark.parametrize('dtype', ['float64', 'float16'])
def test_dtype_is_preserved(dtype):
  params = jax.tree.map(lambda x: np.ones(x.shape, dtype), make_params())
  variables = to_sonnet(params)
  assert {value.dtype for value in variables.values()} == {np.dtype(dtype)}
  assert_equal(from_sonnet(variables), params)


@pytest.mark.parametrize('name', SONNET_NAMES_OF_TWO_BLOCKS)
def test_a_missing_variable_is_an_error(name):
  variables = to_sonnet(make_params(num_blocks=2))
  del variables[f'relational_memory/{name}']
  with pytest.raises(
    ValueError, match=rf"missing: \['relational_memory/{name}'\]$"
  ):
    from_sonnet(variables)


@pytest.mark.parametrize('name', SONNET_NAMES_OF_TWO_BLOCKS)
def test_a_missing_parameter_is_an_error(name):
  params = make_params(num_blocks=2)
  haiku = dict(name_table(Structure(2, 2, gated=True)))[name]
  module, parameter = f'relational_memory/{haiku}'.rsplit('/', 1)
  del params[module][parameter]
  with pytest.raises(
    ValueError, match=rf"missing: \['{module}/{parameter}'\]$"
  ):
    to_sonnet(params)


@pytest.mark.parametrize(
  'extra', ['linear_9/w', 'layer_norm/moving_mean', 'gates/w', 'mlp/linear_0/c']
)
def test_an_unknown_variable_is_an_error(extra):
  variables = to_sonnet(make_params())
  variables[f'relational_memory/{extra}'] = np.zeros(3)
  with pytest.raises(ValueError, match=f"'relational_memory/{extra}'"):
    from_sonnet(variables)


def test_variables_of_other_modules_are_errors():
  variables = {
    **to_sonnet(make_params(), 'agent/core'),
    'agent/policy/w': np.zeros(3),
    'agent/core_2/b': np.zeros(3),
  }
  with pytest.raises(
    ValueError, match=r"\['agent/core_2/b', 'agent/policy/w'\]; select_core"
  ):
    from_sonnet(variables)


def test_parameters_of_other_modules_are_errors():
  params = {**make_params(), 'policy': {'w': np.zeros(3)}}
  with pytest.raises(ValueError, match=r"\['policy/w'\]"):
    to_sonnet(params)


@pytest.mark.parametrize(
  'name',
  [
    name
    for name in SONNET_NAMES_OF_TWO_BLOCKS
    # Squares stay valid when transposed.
    if name.endswith('/w') and not name.startswith('mlp/')
  ],
)
def test_a_transposed_weight_is_an_error(name):
  variables = to_sonnet(make_params(num_blocks=2))
  name = f'relational_memory/{name}'
  shape = variables[name].shape
  variables[name] = variables[name].T
  message = (
    rf'{name} has shape \({shape[1]}, {shape[0]}\), expected .*{shape[1]}\)'
  )
  with pytest.raises(ValueError, match=message) as error:
    from_sonnet(variables)
  assert str(error.value).count('has shape') == 1


@pytest.mark.parametrize('name', SONNET_NAMES_OF_TWO_BLOCKS)
@pytest.mark.parametrize('style', ['unit', 'memory'])
def test_a_weight_of_the_wrong_width_is_an_error(name, style):
  variables = to_sonnet(make_params(num_blocks=2, gate_style=style))
  name = f'relational_memory/{name}'
  variables[name] = variables[name][..., :-1]
  with pytest.raises(
    ValueError, match=f'Wrong shapes: {name} has shape'
  ) as error:
    from_sonnet(variables)
  assert str(error.value).count('has shape') == 1


def test_gates_of_unknown_style_are_refused():
  variables = to_sonnet(make_params())
  for name in 'linear_2', 'linear_3':
    for leaf in 'wb':
      key = f'relational_memory/{name}/{leaf}'
      variables[key] = variables[key][..., :6]
  with pytest.raises(ValueError, match='gates are 6 wide, expected 70 .* or 2'):
    from_sonnet(variables)


def test_a_parameter_of_wrong_shape_has_its_haiku_name():
  params = make_params()
  params['relational_memory/attention_0/qkv_norm']['scale'] = np.ones([1, 145])
  with pytest.raises(
    ValueError,
    match=r'relational_memory/attention_0/qkv_norm/scale has shape \(1, 145\), '
    r'expected \(145,\)',
  ):
    to_sonnet(params)


def test_a_variable_given_twice_is_refused():
  variables = to_sonnet(make_params())
  variables['relational_memory/linear/w:0'] = np.zeros(3)
  with pytest.raises(ValueError, match="'relational_memory/linear/w' is given"):
    from_sonnet(variables)


def test_several_cores_need_a_scope():
  left, right = make_params(), make_params(num_blocks=2)
  variables = {**to_sonnet(left, 'a/core'), **to_sonnet(right, 'b/core')}
  with pytest.raises(ValueError, match=r"\['a/core', 'b/core'\].*scope="):
    select_core(variables)
  selection = select_core(variables, scope='b/core')
  assert_equal(from_sonnet(selection.core), right)
  assert sorted(selection.other) == sorted(to_sonnet(left, 'a/core'))


def test_variables_without_a_core_are_refused():
  with pytest.raises(ValueError, match=r"No relational memory.*\['lstm/w'\]"):
    from_sonnet({'lstm/w': np.zeros(3)})


def test_every_variable_of_a_training_checkpoint_is_sorted():
  core = to_sonnet(make_params(), 'model/relational_memory')
  slots = {
    **{f'{name}/Adam': value for name, value in core.items()},
    **{f'{name}/Adam_1': value for name, value in core.items()},
    'train/model/relational_memory/linear/w/RMSProp': np.zeros(3),
    'model/mlp/linear_0/w/Adam': np.zeros(3),
    'beta1_power': np.zeros([]),
    'train/beta2_power_1': np.zeros([]),
    'global_step': np.zeros([], np.int64),
  }
  others = {
    'model/mlp/linear_0/w': np.zeros(3),
    'model/linear/b': np.zeros(3),
    'model/layer_norm_step': np.zeros(3),
  }
  everything = {**slots, **others, **core}
  selection = select_core(everything)
  assert selection.scope == 'model/relational_memory'
  assert_equal(selection.core, core)
  assert sorted(selection.optimizer) == sorted(slots)
  assert sorted(selection.other) == sorted(others)
  assert_equal(from_sonnet(selection.core), make_params())
