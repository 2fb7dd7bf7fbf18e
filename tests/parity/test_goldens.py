"""Tests rmc_jax/parity/goldens.py: our core against stored results."""

import numpy as np
import pytest

from rmc_jax.parity import goldens
from rmc_jax.parity import ours
from rmc_jax.parity.compare import compare

REGISTRY = goldens.registry()


@pytest.mark.parametrize('name', REGISTRY)
def test_golden(name):
  for result in goldens.check([name]):
    assert result.passed, result


def test_registry_lists_the_files_that_exist():
  files = {path.stem for path in goldens.FOLDER.glob('*.npz')}
  assert files == set(REGISTRY)


def test_goldens_cover_all_gate_styles_inputs_and_scales():
  settings = [cases[0].computation.settings for cases in REGISTRY.values()]
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
def test_a_core_that_differs_fails(change):
  (case,) = REGISTRY['memory_gates_matrix']
  theirs, _ = goldens.load('memory_gates_matrix', case.computation)
  settings = {**case.computation.settings}
  settings['arguments'] = {**settings['arguments'], **change}
  changed = case.computation._replace(settings=settings)
  if 'gate_style' in change:  # other shapes, so the weights do not fit
    with pytest.raises(ValueError, match='shape'):
      ours.compute(changed, 'float32')
    return
  computed = ours.compute_in_both_precisions(changed)
  assert not compare(case, computed, theirs).passed


def test_a_golden_made_from_other_inputs_is_refused():
  computation = REGISTRY['layer_norm'][0].computation
  inputs = computation.arrays['inputs'].copy()
  inputs[0, 0] += 1e-6
  other = computation._replace(arrays={**computation.arrays, 'inputs': inputs})
  with pytest.raises(ValueError, match='made from other weights'):
    goldens.load('layer_norm', other)


def test_formula_equals_python_integers():
  first, second = goldens.formula()([2, 3]), goldens.formula()([100])
  np.testing.assert_array_equal(first.ravel(), second[:6])
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
  # Even with --write, files that exist are kept unless --overwrite is given.
  assert goldens.main(['adam', '--write']) == 0
  assert [path.name for path in tmp_path.iterdir()] == ['adam.npz']
  assert (tmp_path / 'adam.npz').read_bytes() == b'kept'


def test_goldens_are_small():
  sizes = [path.stat().st_size for path in goldens.FOLDER.glob('*.npz')]
  assert sum(sizes) < 200_000
