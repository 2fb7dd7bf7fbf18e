"""Tests rmc_jax/parity/__main__.py and report.py."""

import json

import pytest

from rmc_jax.parity import __main__ as program
from rmc_jax.parity import goldens
from rmc_jax.parity import report
from rmc_jax.parity.cases import Case
from rmc_jax.parity.compare import Comparison
from rmc_jax.parity.reference import Computation

ABOUT = {
  'sonnet': '1.36', 'tensorflow': '1.15.5', 'python': '3.7.1', 'shimmed': False
}  # fmt: skip


def make_comparison(relative=1e-7, configuration='N3 V7', name='steps'):
  computation = Computation(configuration, 'unroll', {}, {})
  return Comparison(
    case=Case(name, computation, configuration),
    absolute=2e-7, relative=relative, where='outputs',
    ours=3e-7, theirs=4e-7, double=5e-16,
  )  # fmt: skip


@pytest.fixture
def golden_comparisons(monkeypatch):
  """Makes `--goldens` report these comparisons without computing any."""
  comparisons = []
  monkeypatch.setattr(goldens, 'check', lambda: iter(comparisons))
  return comparisons


def run(monkeypatch, *arguments):
  monkeypatch.setattr('sys.argv', ['parity', *arguments])
  return program.main()


def test_exit_code_0_and_a_table_when_all_pass(
  golden_comparisons, monkeypatch, capsys
):
  golden_comparisons += [
    make_comparison(),
    make_comparison(configuration='N5 V2'),
  ]
  assert run(monkeypatch, '--goldens') == 0
  printed = capsys.readouterr().out
  row = next(line for line in printed.splitlines() if 'N5 V2' in line)
  assert ' '.join(row.split()) == (
    'steps 2.0e-07 1.0e-07 1e-05 3.0e-07 4.0e-07 5.0e-16 pass N5 V2'
  )
  assert 'dm-sonnet 1.36 on TensorFlow 1.15.5' in printed
  assert 'untouched' in printed
  assert printed.endswith('All 2 cases pass.\n')


def test_exit_code_1_when_one_fails(golden_comparisons, monkeypatch, capsys):
  golden_comparisons += [
    make_comparison(),
    make_comparison(1e-3, 'N5 V2'),
    make_comparison(),
  ]
  assert run(monkeypatch, '--goldens') == 1
  printed = capsys.readouterr().out
  assert '1 of 3 cases FAIL:\n  steps: N5 V2: outputs\n' in printed


def test_json(golden_comparisons, monkeypatch, capsys):
  golden_comparisons += [make_comparison(), make_comparison(1e-3)]
  assert run(monkeypatch, '--goldens', '--json') == 1
  printed = json.loads(capsys.readouterr().out)
  assert [case['passed'] for case in printed['cases']] == [True, False]
  assert printed['cases'][1]['relative'] == 1e-3
  assert printed['references'][0]['sonnet'] == '1.36'


def test_a_missing_original_is_an_error_with_its_remedy(
  monkeypatch, tmp_path, capsys
):
  monkeypatch.setenv('RMC_PARITY_HOME', str(tmp_path))
  assert run(monkeypatch) == 1
  assert 'Run launch/parity.sh first' in capsys.readouterr().err


def test_a_summary_keeps_the_worst_of_each_column():
  comparisons = [
    make_comparison(),
    make_comparison(1e-3, 'worst'),
    make_comparison(2e-7),
  ]
  line = report.summary_line(comparisons)
  assert line.startswith('steps, 3 random ')
  assert line.endswith('FAIL  worst: worst')
  assert '1.0e-03' in line


def test_a_summary_does_not_lose_a_nan():
  line = report.summary_line(
    [make_comparison(), make_comparison(float('nan'), 'lost')]
  )
  assert 'nan' in line
  assert line.endswith('FAIL  worst: lost')


def test_report_mentions_shims():
  assert 'untouched' in report.about(ABOUT)
  assert 'shims' in report.about({**ABOUT, 'shimmed': True})
