"""Tests rmc_jax/parity/__main__.py and report.py."""

import json

import pytest

from rmc_jax.parity import __main__ as program
from rmc_jax.parity import goldens
from rmc_jax.parity import report
from rmc_jax.parity.cases import Rung
from rmc_jax.parity.compare import Gap
from rmc_jax.parity.reference import Case

ABOUT = {
  'sonnet': '1.36', 'tensorflow': '1.15.5', 'python': '3.7.1', 'shimmed': False
}  # fmt: skip


def make_gap(relative=1e-7, configuration='N3 V7', name='steps'):
  case = Case(configuration, 'unroll', {}, {})
  return Gap(
    rung=Rung(name, case, ('outputs',), configuration),
    absolute=2e-7, relative=relative, where='outputs',
    ours=3e-7, theirs=4e-7, double=5e-16,
  )  # fmt: skip


@pytest.fixture
def golden_gaps(monkeypatch):
  """Makes `--goldens` report these gaps, so that nothing is computed."""
  gaps = []
  monkeypatch.setattr(goldens, 'check', lambda: iter(gaps))
  return gaps


def run(monkeypatch, *arguments):
  monkeypatch.setattr('sys.argv', ['parity', *arguments])
  return program.main()


def test_exit_code_0_and_a_table_when_all_pass(
  golden_gaps, monkeypatch, capsys
):
  golden_gaps += [make_gap(), make_gap(configuration='N5 V2')]
  assert run(monkeypatch, '--goldens') == 0
  printed = capsys.readouterr().out
  row = next(line for line in printed.splitlines() if 'N5 V2' in line)
  assert ' '.join(row.split()) == (
    'steps 2.0e-07 1.0e-07 1e-05 3.0e-07 4.0e-07 5.0e-16 pass N5 V2'
  )
  assert 'dm-sonnet 1.36 on TensorFlow 1.15.5' in printed
  assert 'untouched' in printed
  assert printed.endswith('All 2 rungs pass.\n')


def test_exit_code_1_when_one_fails(golden_gaps, monkeypatch, capsys):
  golden_gaps += [make_gap(), make_gap(1e-3, 'N5 V2'), make_gap()]
  assert run(monkeypatch, '--goldens') == 1
  printed = capsys.readouterr().out
  assert '1 of 3 rungs FAIL:\n  steps: N5 V2: outputs\n' in printed


def test_json(golden_gaps, monkeypatch, capsys):
  golden_gaps += [make_gap(), make_gap(1e-3)]
  assert run(monkeypatch, '--goldens', '--json') == 1
  told = json.loads(capsys.readouterr().out)
  assert [rung['passed'] for rung in told['rungs']] == [True, False]
  assert told['rungs'][1]['relative'] == 1e-3
  assert told['references'][0]['sonnet'] == '1.36'


def test_without_the_original_it_says_what_to_do(monkeypatch, tmp_path, capsys):
  monkeypatch.setenv('RMC_PARITY_HOME', str(tmp_path))
  assert run(monkeypatch) == 1
  assert 'Run launch/parity.sh first' in capsys.readouterr().err


def test_a_summary_keeps_the_worst_of_each_column():
  gaps = [make_gap(), make_gap(1e-3, 'worst'), make_gap(2e-7)]
  line = report.summary_line(gaps)
  assert line.startswith('steps, 3 random ')
  assert line.endswith('FAIL  worst: worst')
  assert '1.0e-03' in line


def test_a_summary_does_not_lose_a_nan():
  line = report.summary_line([make_gap(), make_gap(float('nan'), 'lost')])
  assert 'nan' in line
  assert line.endswith('FAIL  worst: lost')


def test_shims_are_told():
  assert 'untouched' in report.about(ABOUT)
  assert 'shims' in report.about({**ABOUT, 'shimmed': True})
