"""Tests rmc_jax/training/progress.py on a terminal and in a log file."""

import io

from rich.console import Console

from rmc_jax.training.progress import Progress

TRAIN = {'gradient_norm': 3.0, 'accuracy': 0.5, 'loss': 1.23456}


def run(console, **options):
  progress = Progress(10, 50, console=console, **options)
  progress.update(20)
  progress.update(30, TRAIN, {'accuracy': 0.25})
  progress.update(50, TRAIN)
  progress.close()
  return console.file.getvalue()


def test_prints_compact_lines_without_a_terminal():
  console = Console(file=io.StringIO(), force_terminal=False)
  (line,) = run(console, seconds_between_lines=1e9).splitlines()
  assert line.startswith(
    'step 50/50  loss 1.235  accuracy 0.5  eval accuracy 0.25  '
  )
  assert line.endswith(' updates/s  0:00:00 left')


def test_prints_a_line_per_interval_without_a_terminal():
  console = Console(file=io.StringIO(), force_terminal=False)
  lines = run(console, seconds_between_lines=0.0).splitlines()
  # At step 20 there are no metrics yet.
  assert [line.split()[1] for line in lines] == ['30/50', '50/50']


def test_shows_a_bar_on_a_terminal():
  console = Console(file=io.StringIO(), force_terminal=True, width=120)
  output = run(console)
  assert '50/50' in output
  assert 'loss 1.235' in output
  assert 'left' in output


def test_shows_all_metrics_without_loss_and_accuracy():
  console = Console(file=io.StringIO(), force_terminal=False)
  progress = Progress(0, 5, console=console)
  progress.update(5, {'return': 12.0})
  assert console.file.getvalue().startswith('step 5/5  return 12')
