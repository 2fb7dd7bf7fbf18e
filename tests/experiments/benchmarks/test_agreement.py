"""Tests experiments/benchmarks/agreement.py."""

import dataclasses

import numpy as np
import pytest

from experiments.benchmarks import agreement
from experiments.benchmarks.sizes import Size
from rmc_jax.parity import convert

SIZE = Size(
  steps=5, batch=2, features=13, mem_slots=3, head_size=7, num_heads=11,
  key_size=17, mlp_layers=3, source='primes',
)  # fmt: skip


@pytest.mark.parametrize('gate_style', ['unit', 'memory'])
def test_arrays_have_the_shapes_of_the_core_and_no_neutral_values(gate_style):
  size = dataclasses.replace(SIZE, gate_style=gate_style)
  arrays = agreement.make_arrays(size)
  assert arrays['inputs'].shape == (5, 2, 13)
  assert arrays['state'].shape == (2, 3, 77)
  np.testing.assert_array_equal(arrays['state'][1], np.eye(3, 77))
  # Refuses what is missing, unknown or of the wrong shape.
  params = convert.from_sonnet(arrays['weights'])
  gates = {'unit': 154, 'memory': 2}[gate_style]
  assert params['relational_memory/memory_gates']['w'].shape == (77, gates)
  qkv = params['relational_memory/attention_0/qkv']['w']
  assert qkv.shape == (77, 11 * (17 + 17 + 7))
  assert len([name for name in params if '/mlp/' in name]) == 3
  for name, value in arrays['weights'].items():
    assert value.dtype == np.float32
    assert not np.any(value == 0), name  # A missing bias is noticed.
    assert not np.any(value == 1), name


def test_original_and_haiku_get_the_same_numbers(tmp_path):
  agreement.write(tmp_path / 'haiku', SIZE)
  agreement.write(tmp_path / 'sonnet', SIZE, sonnet=True)
  haiku = results(dict(np.load(tmp_path / 'haiku.npz')))
  sonnet = results(dict(np.load(tmp_path / 'sonnet.npz')))
  assert 'gradients/relational_memory/attention_0/qkv/w' in haiku
  assert 'gradients/relational_memory/linear_1/w' in sonnet
  differences = agreement.difference(agreement.by_haiku_names(sonnet), haiku)
  assert differences == {'gradients': 0.0, 'outputs': 0.0, 'state': 0.0}


def test_difference_is_by_the_largest_of_its_group():
  expected = {
    'outputs': np.array([2.0, -4.0]),
    'loss': np.array(0.5),
    'gradients/a': np.array([10.0]),
    'gradients/b': np.array([0.1]),
  }
  found = {
    'outputs': np.array([2.0, -3.0]),
    'loss': np.array(0.5),
    'gradients/a': np.array([10.0]),
    'gradients/b': np.array([0.2]),
  }
  assert agreement.difference(found, expected) == pytest.approx(
    {'outputs': 0.25, 'loss': 0.0, 'gradients': 0.01}
  )


@pytest.mark.parametrize(
  'change',
  [
    {'gradients/b': np.array([[1.0]])},  # broadcasts, and must not
    {'gradients/b': np.array([np.nan])},
    {'gradients/c': np.array([0.0])},
  ],
)
def test_shapes_names_and_nans_are_refused(change):
  expected = {'gradients/a': np.ones(3), 'gradients/b': np.ones(1)}
  for found in ({**expected, **change}, {'gradients/a': np.ones(3)}):
    differences = agreement.difference(found, expected)
    assert differences['gradients'] == np.inf
    assert agreement.disagreement(differences, 'bfloat16') is not None


def test_disagreement_names_only_what_differs():
  message = agreement.disagreement({'outputs': 5e-4, 'loss': 3e-3}, 'float32')
  assert message == 'differs in loss by 3.0e-03; 1e-03 is allowed'
  assert (
    agreement.disagreement({'outputs': 5e-4, 'loss': 0.0}, 'float32') is None
  )


def results(arrays):
  renamed = {
    name.replace('weights/', 'gradients/'): value
    for name, value in arrays.items()
  }
  return renamed | {'outputs': renamed.pop('inputs')}
