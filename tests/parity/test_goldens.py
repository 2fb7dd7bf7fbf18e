"""Tests rmc_jax/parity/goldens.py: our core against the stored originals."""

import numpy as np
import pytest

from rmc_jax.parity import goldens
from rmc_jax.parity import live
from rmc_jax.parity import ours
from rmc_jax.parity.compare import gap

REGISTRY = goldens.registry()


@pytest.mark.parametrize('name', REGISTRY)
def test_golden(name):
  for result in goldens.check([name]):
    assert result.passed, result


def test_every_file_is_registered_and_every_entry_has_its_file():
  files = {path.stem for path in goldens.FOLDER.glob('*.npz')}
  assert files == set(REGISTRY)


def test_all_gate_styles_inputs_and_scales_are_covered():
  settings = [rungs[0].case.settings for rungs in REGISTRY.values()]
  unrolls = [s for s in settings if 'query_scale' in s]
  styles = {s['arguments'].get('gate_style', 'unit') for s in unrolls}
  assert styles == {'unit', 'memory', None}
  assert {s['treat_input_as_matrix'] for s in unrolls} == {False, True}
  assert {s['query_scale'] for s in unrolls} == {'key', 'qkv'}
  assert max(s['arguments'].get('num_blocks', 1) for s in unrolls) > 1


def test_the_originals_were_untouched():
  versions = goldens.references()
  assert {about['sonnet'] for about in versions} == {'1.36', '1.26'}
  assert not any(about['shimmed'] for about in versions)


@pytest.mark.parametrize(
  'change',
  [
    {'forget_bias': 0.9999},
    {'input_bias': 0.2501},
    {'gate_style': 'unit'},
  ],
)
def test_a_core_that_differs_is_noticed(change):
  (rung,) = REGISTRY['memory_gates_matrix']
  theirs, _ = goldens.load('memory_gates_matrix', rung.case)
  other = {**rung.case.settings}
  other['arguments'] = {**other['arguments'], **change}
  case = rung.case._replace(settings=other)
  if 'gate_style' in change:  # other shapes, so the weights do not fit
    with pytest.raises(ValueError, match='shape'):
      ours.compute(case, 'float32')
    return
  computed = [ours.compute(case, dtype) for dtype in live.PRECISIONS]
  assert not gap(rung, *computed, *theirs).passed


def test_a_golden_made_from_something_else_is_refused():
  case = REGISTRY['layer_norm'][0].case
  inputs = case.arrays['inputs'].copy()
  inputs[0, 0] += 1e-6
  other = case._replace(arrays={**case.arrays, 'inputs': inputs})
  with pytest.raises(ValueError, match='made from other weights'):
    goldens.load('layer_norm', other)


def test_the_formula_is_the_same_everywhere():
  first, second = goldens.formula()([2, 3]), goldens.formula()([100])
  np.testing.assert_array_equal(first.ravel(), second[:6])
  # Worked out with Python's own integers.
  expected = []
  for n in (1, 2, 3):
    x = n * 0x9E3779B97F4A7C15 % 2**64
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB % 2**64
    x ^= x >> 31
    expected.append(12**0.5 * ((x >> 40) / 2**24 - 0.5))
  np.testing.assert_array_equal(first[0], expected)
  many = goldens.formula()([10000])
  # Mean 0 and variance 1, to about three standard errors.
  assert abs(many.mean()) < 0.03
  assert abs(many.var() - 1) < 0.03


def test_the_generator_is_dry_by_default(monkeypatch, tmp_path, capsys):
  monkeypatch.setattr(goldens, 'FOLDER', tmp_path)
  (tmp_path / 'adam.npz').write_bytes(b'kept')
  assert goldens.main(['adam', 'no_gates']) == 0
  assert capsys.readouterr().out == (
    'adam: exists, kept\nno_gates: would be made\n'
  )
  assert goldens.main(['adam', '--overwrite']) == 0
  assert capsys.readouterr().out == 'adam: would be replaced\n'
  # Even with --write, what exists is kept unless --overwrite is given.
  assert goldens.main(['adam', '--write']) == 0
  assert [path.name for path in tmp_path.iterdir()] == ['adam.npz']
  assert (tmp_path / 'adam.npz').read_bytes() == b'kept'


def test_goldens_are_small():
  sizes = [path.stat().st_size for path in goldens.FOLDER.glob('*.npz')]
  assert sum(sizes) < 200_000
