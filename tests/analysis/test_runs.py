"""Tests rmc_jax/analysis/runs.py."""

import contextlib
import json
import pathlib

import pytest

from rmc_jax.analysis import runs


def write_run(workdir, **content):
  workdir.mkdir()
  content = {'experiment': 'toy', 'config': {'size': 3}} | content
  (workdir / 'config.json').write_text(json.dumps(content))
  (workdir / 'metrics.jsonl').write_text(
    '{"step": 1, "train": {"loss": 2.0}}\n'
    '{"step": 2, "train": {"loss": 1.5}, "eval": {"loss": 1.0}}\n'
  )
  return workdir


def test_read_run(tmp_path):
  run = runs.read_run(write_run(tmp_path / 'a'), 'other', 'toy')
  assert (run.name, run.experiment, run.config) == ('a', 'toy', {'size': 3})
  assert [line['step'] for line in run.records] == [1, 2]
  assert runs.evaluations(run, 'loss') == [1.0]
  with pytest.raises(ValueError, match='no evaluation yet'):
    runs.evaluations(run._replace(records=run.records[:1]), 'loss')


def test_results_of_a_finished_run(tmp_path):
  with pytest.raises(ValueError, match='no errors.json.*train it further'):
    runs.read_result(tmp_path, 'errors.json')
  path = tmp_path / 'errors.json'
  path.write_text('[0.5')
  with pytest.raises(ValueError, match=r'errors\.json cannot be .*rewrites'):
    runs.read_result(tmp_path, 'errors.json')
  path.write_text('[0.5]')
  assert runs.read_result(tmp_path, 'errors.json') == [0.5]


def test_folders_that_are_not_runs_are_refused(tmp_path):
  with pytest.raises(ValueError, match='not the folder of a run'):
    runs.read_run(tmp_path, 'toy')
  workdir = write_run(tmp_path / 'a')
  with pytest.raises(ValueError, match='a run of toy, not of x or y'):
    runs.read_run(workdir, 'x', 'y')
  (workdir / 'config.json').write_text('{"experiment": ')
  with pytest.raises(ValueError, match='cannot be read'):
    runs.read_run(workdir, 'toy')


def test_common_folder(tmp_path):
  a, b = (
    runs.read_run(write_run(tmp_path / name), 'toy') for name in ('a', 'b')
  )
  assert runs.common_folder([a]) == tmp_path / 'a'
  assert runs.common_folder([a, b]) == tmp_path


def test_main_reads_workdirs_in_buckets(tmp_path, capsys, monkeypatch):
  copied = []

  @contextlib.contextmanager
  def copy(workdir):
    copied.append(workdir)
    yield tmp_path

  monkeypatch.setattr(runs.bucket, 'as_folder', copy)

  def report(*folders):
    return f'{folders}'

  assert runs.main(report, 'Usage.', ['gs://b/run']) == 0
  assert capsys.readouterr().out == f'{(tmp_path,)}\n'
  assert copied == ['gs://b/run']
  assert runs.main(report, 'Usage.', ['gs://b/run', 'x/a']) == 77
  assert 'copy the runs' in capsys.readouterr().err


def test_main(tmp_path, capsys):
  def report(*workdirs):
    return ' '.join(path.name for path in workdirs)

  def fail(workdir):
    raise ValueError(f'{workdir} is bad')

  assert runs.main(report, 'Usage.', ['x/a', 'x/b']) == 0
  assert capsys.readouterr().out == 'a b\n'
  assert runs.main(report, 'Usage.', ['--help']) == 0
  assert capsys.readouterr().out == 'Usage.\n'
  assert runs.main(report, 'Usage.', []) == 77
  assert runs.main(report, 'Usage.', ['az://b/run']) == 77
  assert 'az://b/run' in capsys.readouterr().err
  assert runs.main(fail, 'Usage.', [str(pathlib.Path('a'))]) == 77
  assert capsys.readouterr().err == 'analysis: a is bad\n'
