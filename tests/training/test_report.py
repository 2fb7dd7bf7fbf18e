"""Tests rmc_jax/training/report.py; test_loop.py reads what runs report."""

import inspect
import time

from rmc_jax.training import goodput
from rmc_jax.training.log import read_metrics
from rmc_jax.training.report import NullReport
from rmc_jax.training.report import Report


def use(report):
  """Calls every method once."""
  with report:
    report.print('A line.')
    report.enter('step')
    with report.timed('evaluation'):
      time.sleep(0.01)
    report.record(5, {'loss': 0.5}, None)
    with report.saving(5):
      pass
    report.finish(5, saved=5)


def test_null_report_has_no_effects(tmp_path, monkeypatch, capsys):
  monkeypatch.chdir(tmp_path)
  use(NullReport())
  assert capsys.readouterr().out == ''
  assert list(tmp_path.iterdir()) == []


def test_report_writes_log_and_ledger(tmp_path, capsys):
  use(Report(tmp_path, 0, 10, time.time()))
  output = capsys.readouterr().out
  assert output.startswith('A line.\n')
  assert 'Goodput' in output
  (line,) = read_metrics(tmp_path)
  assert (line['step'], line['train']) == (5, {'loss': 0.5})
  (start,) = goodput.read_ledger(tmp_path)
  assert start['seconds']['evaluation'] >= 0.01
  assert [step for step, _ in start['saved']] == [5, 5]


def test_both_reports_have_the_same_methods():
  def signatures(cls):
    return {
      name: list(inspect.signature(function).parameters)
      for name, function in inspect.getmembers(cls, inspect.isfunction)
      if not name.startswith('_')
    }

  assert signatures(Report) == signatures(NullReport)
