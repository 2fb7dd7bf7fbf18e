"""Tests experiments/benchmarks/agreement.py: same numbers, other names."""

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
def test_arrays_have_the_shapes_of_the_core_and_nothing_is_special(gate_style):
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
    assert not np.any(value == 0), name  # a bias left out is noticed
    assert not np.any(value == 1), name


def test_every_reader_gets_the_same_numbers(tmp_path):
  for worker in ('jax', 'sonnet'):
    agreement.write(tmp_path / worker, SIZE, worker)
  ours = dict(np.load(tmp_path / 'jax.npz'))
  theirs = dict(np.load(tmp_path / 'sonnet.npz'))
  assert 'weights/relational_memory/attention_0/qkv/w' in ours
  assert 'weights/relational_memory/linear_1/w' in theirs
  for name in ('inputs', 'state'):
    np.testing.assert_array_equal(ours[name], theirs[name])
  # As results they come back under our names.
  for worker, arrays in {'jax': ours, 'sonnet': theirs}.items():
    gradients = {
      name.replace('weights/', 'gradients/'): value
      for name, value in arrays.items()
      if name.startswith('weights/')
    }
    np.savez(tmp_path / 'results', **gradients, outputs=ours['inputs'])
    found = agreement.read(tmp_path / 'results.npz', worker)
    assert agreement.difference(found, results(ours)) == {
      'gradients': 0.0, 'outputs': 0.0,
    }  # fmt: skip


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
    assert 'gradients' in agreement.refusal(differences, 'bfloat16')


def test_refusal_names_only_what_differs():
  said = agreement.refusal({'outputs': 5e-4, 'loss': 3e-3}, 'float32')
  assert said == 'refused: differs in loss by 3.0e-03; 1e-03 is allowed'
  assert agreement.refusal({'outputs': 5e-4, 'loss': 0.0}, 'float32') is None


def results(arrays):
  return {
    'outputs': arrays['inputs'],
    **{
      name.replace('weights/', 'gradients/'): value
      for name, value in arrays.items()
      if name.startswith('weights/')
    },
  }
