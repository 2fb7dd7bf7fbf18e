"""Tests experiments/benchmarks/report.py."""

import json

import pytest
from rich.console import Console

from experiments.benchmarks import harness
from experiments.benchmarks import report


def entry(*trials):
  return {'seconds': {'train': list(trials)}}


def test_time_is_the_median_of_the_medians_of_trials():
  found = report.step_time(entry([1.0, 2.0, 90.0], [4.0], [3.0, 3.0]))
  assert found == (3.0, 2.0, 4.0)
  assert found.text('.0f', 10) == '30\n(20 to 40)'


def test_ratio_is_taken_in_each_trial_before_the_median():
  # Both were slow in the second trial; their ratio was not.
  slow, fast = entry([2.0], [20.0], [3.0]), entry([1.0], [10.0], [2.0])
  assert report.ratio(slow, fast) == (2.0, 1.5, 2.0)
  with pytest.raises(ValueError, match='shorter'):
    report.ratio(slow, entry([1.0]))


@pytest.mark.parametrize(
  ('flag', 'message'),
  [
    ('--sizes=tiny,huge', "unknown name 'huge'; expected some of tiny, small"),
    ('--trials=0', "got '0'; expected an integer of at least 1"),
  ],
)
def test_wrong_flags_are_refused_with_their_value(capsys, flag, message):
  parser = report.make_parser('x', 'Times x.', ['tiny', 'small'], 'tiny')
  with pytest.raises(SystemExit):
    parser.parse_args([flag])
  assert message in capsys.readouterr().err


def test_sizes_are_a_list_of_names():
  parser = report.make_parser('x', 'Times x.', ['tiny', 'small'], 'small')
  assert parser.parse_args([]).sizes == ['small']
  assert parser.parse_args(['--sizes=all']).sizes == ['tiny', 'small']


def test_run_writes_each_size_and_the_command_without_paths(tmp_path, capsys):
  parser = report.make_parser('x', 'Times x.', ['tiny', 'small'], 'small')
  output = tmp_path / 'results.json'
  flags = ['--sizes=all', '--device=cpu', f'--output={output}']

  def measure(name, options):
    if name == 'small':
      raise harness.Failed('jit: died')
    return {'size': name}

  def table(name, measured):
    rows = {'a': {'one': '1'}, 'b': {'one': '2', 'two': '3'}}
    return report.make_table(name, 'letter', rows)

  with pytest.raises(SystemExit, match=r'benchmarks\.x: small: jit: died'):
    report.run(parser, parser.parse_args(flags), flags, measure, table)
  results = json.loads(output.read_text())
  assert results['sizes'] == {'tiny': {'size': 'tiny'}}
  assert results['command'] == (
    'python -m experiments.benchmarks.x --sizes=all --device=cpu'
  )
  assert results['cores'] >= 1
  assert str(tmp_path) not in output.read_text()
  assert 'letter' in capsys.readouterr().out


def test_caption_lists_what_was_left_out_and_why(capsys):
  entries = {'a': entry([1.0]), 'b': {'left_out': 'ValueError: no forward [b]'}}
  measured = {'implementations': entries, 'idle_share': 0.25}
  assert list(report.timed(measured)) == ['a']
  table = report.make_table('t', 'x', {'a' * 70: {'ms': '1'}}, measured)
  Console(width=100).print(table)
  text = ' '.join(capsys.readouterr().out.split())
  assert 'b: ValueError: no forward [b]' in text
  assert '25.0% of a core' in text
