"""Tests rmc_jax/parity/live.py, with the original running."""

import functools

import jax
import numpy as np
import pytest

from rmc_jax.parity import cases
from rmc_jax.parity import convert
from rmc_jax.parity import live
from rmc_jax.parity import ours
from rmc_jax.parity import reference
from rmc_jax.parity.cases import Size
from rmc_jax.parity.checkpoint import load_params
from rmc_jax.parity.checkpoint import read_checkpoint
from rmc_jax.parity.checkpoint import write_checkpoint

pytestmark = [
  pytest.mark.live,
  pytest.mark.skipif(
    not (reference.home() / 'reference/bin/python').exists(),
    reason='run launch/parity.sh first',
  ),
]

SIZE = Size(batch=2, steps=3, features=13)
ARGUMENTS = {
  'mem_slots': 3, 'head_size': 7, 'num_heads': 5, 'key_size': 11,
  'gate_style': 'memory',
}  # fmt: skip


def make_fill(seed=0):
  return np.random.default_rng(seed).standard_normal


@functools.cache
def trained(folder):
  """A checkpoint of a training run of the original, with a scope."""
  (case,) = cases.train_cases(['losses'], make_fill(), ARGUMENTS, SIZE, 3)
  saved = {'checkpoint': str(folder / 'model.ckpt-3'), 'scope': 'agent/torso'}
  arrays = {
    name.replace('weights/', 'weights/agent/torso/'): value
    for name, value in case.computation.arrays.items()
  }
  computation = case.computation._replace(
    settings={**case.computation.settings, **saved}, arrays=arrays
  )
  reference.find().run([computation])
  return saved['checkpoint']


@pytest.fixture(scope='module')
def checkpoint(tmp_path_factory):
  return trained(tmp_path_factory.mktemp('trained'))


def test_fixed_and_random_cases():
  fill = make_fill()
  chosen = [
    cases.linear_case(fill, 17, 13, 19),
    cases.layer_norm_case(fill, 17, 145),
    *cases.train_cases(
      ['losses', 'weights'], fill, ARGUMENTS, SIZE, 5, epsilon=1e-5
    ),
    *cases.error_cases(),
  ]
  chosen += cases.random_cases(3, seed=1)
  comparisons = list(
    live.compare_cases(chosen, reference.find(), reference.find_1_26())
  )
  assert len(comparisons) == len(chosen)
  assert not [c for c in comparisons if not c.passed]


def test_query_scale_qkv_is_that_of_1_26_only():
  new, old = (
    cases.unroll_cases(['steps'], make_fill(), ARGUMENTS, SIZE, scale)[0]
    for scale in ('key', 'qkv')
  )
  for original, same, other in [
    (reference.find(), new, old),
    (reference.find_1_26(), old, new),
  ]:
    computation = new.computation
    theirs = original.run([computation])[computation.name]['outputs']
    assert original.about['sonnet'] == ('1.36' if other is old else '1.26')
    near = ours.compute(same.computation, 'float32')['outputs']
    far = ours.compute(other.computation, 'float32')['outputs']
    # As CHECKS has it for steps; the wrong scale is off a thousandfold more.
    assert np.abs(near - theirs).max() < 5e-6 * np.abs(theirs).max()
    assert np.abs(far - theirs).max() > 5e-3 * np.abs(theirs).max()


def test_checkpoints_in_both_directions_give_the_same_steps():
  comparisons = list(live.compare_checkpoints(make_fill(), reference.find()))
  assert [c.case.name for c in comparisons] == [
    'checkpoint read', 'checkpoint written'
  ]  # fmt: skip
  assert not [c for c in comparisons if not c.passed]


def test_a_training_checkpoint_is_read_and_sorted(checkpoint):
  variables = read_checkpoint(checkpoint)
  selection = convert.select_core(variables)
  assert selection.scope == 'agent/torso/relational_memory'
  linears, gates, mlp, norms = 2, 2, 2, 3
  assert len(selection.core) == 2 * (linears + gates + mlp + norms)
  assert 'global_step' in selection.optimizer
  assert 'beta1_power' in selection.optimizer
  slots = [name for name in selection.optimizer if '/Adam' in name]
  assert len(slots) == 2 * len(selection.core)
  assert not selection.other
  convert.from_sonnet(selection.core)


def test_the_latest_checkpoint_of_a_folder(checkpoint):
  folder = checkpoint.rsplit('/', 1)[0]
  by_folder, by_name = read_checkpoint(folder), read_checkpoint(checkpoint)
  assert sorted(by_folder) == sorted(by_name)
  with_suffix = read_checkpoint(f'{checkpoint}.index')
  assert sorted(with_suffix) == sorted(by_name)


def test_command_line_round_trip(checkpoint, tmp_path, capsys):
  params, again = tmp_path / 'params.npz', tmp_path / 'again.ckpt'
  convert.main(['to-haiku', checkpoint, str(params)])
  printed = capsys.readouterr().out
  assert "18 variables under 'agent/torso/relational_memory'" in printed
  assert 'left out (optimizer): global_step\n' in printed
  convert.main([
    'to-tensorflow', str(params), str(again),
    '--scope=agent/torso/relational_memory',
  ])  # fmt: skip
  before = convert.select_core(read_checkpoint(checkpoint)).core
  after = read_checkpoint(again)
  assert sorted(after) == sorted(before)
  for name, value in before.items():
    np.testing.assert_array_equal(after[name], value)
  jax.tree.map(
    np.testing.assert_array_equal,
    load_params(params),
    convert.from_sonnet(before),
  )


def test_the_original_refuses_a_checkpoint_with_a_variable_missing(tmp_path):
  (case,) = cases.unroll_cases(['steps'], make_fill(), ARGUMENTS, SIZE)
  weights = reference.below('weights/', case.computation.arrays)
  del weights['relational_memory/linear_1/b']
  path = write_checkpoint(tmp_path / 'model.ckpt', weights)
  restored = case.computation._replace(
    settings={**case.computation.settings, 'checkpoint': path}
  )
  with pytest.raises(RuntimeError, match='linear_1/b'):
    reference.find().run([restored])


def test_a_weight_of_the_wrong_shape_is_refused_by_the_runner():
  (case,) = cases.unroll_cases(['steps'], make_fill(), ARGUMENTS, SIZE)
  name = 'weights/relational_memory/linear_1/w'
  arrays = {**case.computation.arrays, name: case.computation.arrays[name].T}
  with pytest.raises(RuntimeError, match=r'linear_1/w has shape \[35, 145\]'):
    reference.find().run([case.computation._replace(arrays=arrays)])
