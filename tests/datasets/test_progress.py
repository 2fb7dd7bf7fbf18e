"""Tests rmc_jax/datasets/progress.py."""

import io
import re

import pytest
from rich.console import Console

from rmc_jax.datasets.progress import log
from rmc_jax.datasets.progress import Progress


def test_a_log_file_gets_a_line_per_interval_and_one_at_the_end():
  out = io.StringIO()
  console = Console(file=out, force_terminal=False, width=40)
  with Progress('valid', 1_500, console=console) as progress:
    progress.update(3, 2_000_000)
    assert out.getvalue() == ''  # ten seconds have not passed
    progress.update(1_500, 7_654_321_000)
  assert re.fullmatch(
    r'valid: 7,654\.3 MB, 1,500 of 1,500 files, [\d,.]+ MB/s\n',
    out.getvalue(),
  )

  out.truncate(0)
  out.seek(0)
  with Progress(
    'test', 2, console=console, seconds_between_lines=0
  ) as progress:
    progress.update(0, 100_000)
    progress.update(1, 300_000)
  assert re.findall(r'([\d.]+) MB, (\d) of', out.getvalue()) == [
      ('0.1', '0'), ('0.3', '1'), ('0.3', '1'),
  ]  # fmt: skip


def test_a_terminal_gets_a_bar():
  out = io.StringIO()
  console = Console(file=out, force_terminal=True, width=100)
  with Progress('train', 7, console=console) as progress:
    progress.update(4, 5_000_000)
  assert 'train: 5.0 MB' in out.getvalue()
  assert '4/7' in out.getvalue()


def test_an_error_prints_no_final_line():
  out = io.StringIO()

  def fail():
    with Progress('train', 7, console=Console(file=out)) as progress:
      progress.update(4, 5_000_000)
      raise KeyError

  with pytest.raises(KeyError):
    fail()
  assert out.getvalue() == ''


def test_log_prints_verbatim_on_standard_error(capsys):
  line = 'a long line [bold] ' + 'x' * 300
  log(line)
  captured = capsys.readouterr()
  assert captured.err == line + '\n'
  assert captured.out == ''
