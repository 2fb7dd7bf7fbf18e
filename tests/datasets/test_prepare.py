"""Tests rmc_jax/datasets/prepare.py, as a command."""

import subprocess
import sys

from rmc_jax import errors
from rmc_jax.datasets import load
from rmc_jax.datasets import prepare


def run(*arguments):
  # Every warning is an error.
  return subprocess.run(
    [
      *(sys.executable, '-W', 'error', '-m', 'rmc_jax.datasets.prepare'),
      *map(str, arguments),
    ],
    capture_output=True,
    text=True,
    check=False,
  )


def test_prints_a_summary_and_progress(tmp_path):
  for name in ('a', 'b', 'c', 'd'):
    (tmp_path / f'{name}.txt').write_text(f'Book {name} it is.\n')
  arguments = 'gutenberg/folder', '--data_dir', tmp_path / 'data'
  out = run(*arguments, f'--manual_dir={tmp_path}')
  assert out.returncode == 0, out.stderr
  place = tmp_path / 'data/gutenberg/folder/1.0.0'
  lines = out.stdout.splitlines()
  assert lines[0] == f'gutenberg/folder 1.0.0 in {place}'
  assert lines[2].split() == ['train', '2', '10', '28', '28', '2']
  assert lines[5].startswith('licence: ')
  assert 'train: 0.0 MB, 2 of 2 files' in out.stderr
  # No output of other libraries.
  assert len(out.stderr.splitlines()) == 4

  again = run(*arguments)
  assert again.returncode == 0, again.stderr
  assert again.stdout == out.stdout
  assert again.stderr == f'gutenberg/folder is prepared already, in {place}.\n'


def test_an_error_is_one_message_and_exit_code_77(tmp_path):
  out = run('ptb', f'--data_dir={tmp_path}', '--manual_dir=/nowhere/at/all')
  assert out.returncode == errors.CONFIGURATION_ERROR
  assert out.stdout == ''
  assert out.stderr.startswith('prepare: /nowhere/at/all is not a folder')
  assert 'Traceback' not in out.stderr


def test_options_are_passed_to_load(tmp_path, monkeypatch, capsys):
  asked = []
  monkeypatch.setattr(
    load, 'prepare', lambda name, **options: asked.append((name, options))
  )
  monkeypatch.setattr(load, 'summary', lambda name, data_dir: f'{name} done')
  assert prepare.main(['text8', '--data_dir=d', '--no-download']) == 0
  assert capsys.readouterr().out == 'text8 done\n'
  assert prepare.main(['ptb', '--manual_dir=m']) == 0
  assert asked == [
    ('text8', {'data_dir': 'd', 'manual_dir': None, 'download': False}),
    # 'data' is the default of the experiments.
    ('ptb', {'data_dir': 'data', 'manual_dir': 'm', 'download': True}),
  ]


def test_an_interruption_prints_one_line(monkeypatch, capsys):
  def interrupt(*_, **__):
    raise KeyboardInterrupt

  monkeypatch.setattr(load, 'prepare', interrupt)
  assert prepare.main(['text8']) == 130
  assert capsys.readouterr().err.startswith('prepare: interrupted')


def test_only_load_imports_tfds():
  program = (
    'import rmc_jax.datasets, rmc_jax.datasets.text_files, sys;'
    "assert 'tensorflow_datasets' not in sys.modules;"
    'import rmc_jax.datasets.load;'
    "assert 'tensorflow_datasets' in sys.modules;"
    "assert 'tensorflow' not in sys.modules"
  )
  subprocess.run([sys.executable, '-c', program], check=True)
