"""Tests rmc_jax/parity/cases.py."""

import numpy as np
import pytest

from rmc_jax.parity import cases
from rmc_jax.parity.cases import Size
from rmc_jax.parity.convert import from_sonnet
from rmc_jax.parity.reference import below


@pytest.fixture(scope='module')
def suite():
  return cases.suite(np.random.default_rng(0).standard_normal)


def test_suite_and_checkpoints_use_every_check(suite):
  names = {case.name for case in suite}
  assert set(cases.CHECKS) == names | {'checkpoint read', 'checkpoint written'}


def test_computations_with_the_same_name_are_the_same(suite):
  by_name = {}
  for _, computation, _ in suite:
    known = by_name.setdefault(computation.name, computation)
    assert known is computation


def test_no_array_has_its_initial_value(suite):
  for case in suite:
    for name, value in case.computation.arrays.items():
      assert value.dtype == np.float32
      if case.computation.kind not in ('create', 'nth_farthest'):
        assert np.all(value != 0.0), name
        assert value.size < 2 or value.std() > 0.05, name


def test_random_configurations_cover_all_arguments():
  seen = {}
  random = cases.random_cases(50, seed=0)
  for steps, gradients in zip(random[::2], random[1::2], strict=True):
    assert steps.computation is gradients.computation
    settings = steps.computation.settings
    seen.setdefault('scale', set()).add(settings['query_scale'])
    seen.setdefault('matrix', set()).add(settings['treat_input_as_matrix'])
    for name, value in settings['arguments'].items():
      seen.setdefault(name, set()).add(value)
    from_sonnet(below('weights/', steps.computation.arrays))
  assert seen['scale'] == {'key', 'qkv'}
  assert seen['matrix'] == {False, True}
  assert seen['gate_style'] == {'unit', 'memory', None}
  assert seen['num_blocks'] == {1, 2, 3}
  assert None in seen['key_size']
  for name in 'mem_slots', 'head_size', 'num_heads', 'attention_mlp_layers':
    assert len(seen[name]) >= 4
  assert len(seen['forget_bias']) >= 3
  assert len(seen['input_bias']) >= 3


def test_random_configurations_do_not_depend_on_their_count():
  few, many = (cases.random_cases(count, seed=3) for count in (2, 5))
  for left, right in zip(few, many, strict=False):
    assert left.configuration == right.configuration
    np.testing.assert_array_equal(
      left.computation.arrays['inputs'], right.computation.arrays['inputs']
    )
  assert len({case.configuration for case in many}) == 5
  other, *_ = cases.random_cases(1, seed=4)
  assert other.configuration != few[0].configuration


def test_shapes_of_the_arrays():
  arguments = {
    'mem_slots': 3, 'head_size': 7, 'num_heads': 5, 'key_size': 11,
    'gate_style': 'memory',
  }  # fmt: skip
  size = Size(batch=2, steps=4, features=13, rows=6)
  case, _ = cases.unroll_cases(
    ['steps', 'gradients'],
    np.random.default_rng(0).standard_normal,
    arguments,
    size,
  )
  shapes = {
    name: value.shape for name, value in case.computation.arrays.items()
  }
  assert shapes['inputs'] == (4, 2, 6, 13)
  assert shapes['state'] == (2, 3, 35)
  assert shapes['cotangents/outputs'] == (4, 2, 105)
  assert shapes['weights/relational_memory/linear/w'] == (13, 35)
  assert shapes['weights/relational_memory/linear_1/w'] == (35, 145)
  assert shapes['weights/relational_memory/linear_2/w'] == (6 * 35, 2)
  assert shapes['weights/relational_memory/linear_3/w'] == (35, 2)
