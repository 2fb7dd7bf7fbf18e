"""Tests experiments/language_modeling/analysis.py."""

import json

import pytest

from experiments import configuration
from experiments.language_modeling import analysis
from rmc_jax.analysis import runs
from tests.experiments.language_modeling.tiny import config_of


def test_report_of_two_runs(tmp_path):
  bands = {'> 10,000': (3.0, 40), '< 1,000': (1234.5, 60), 'all': (9.0, 100)}
  for name, test in {'a': 9.0, 'b': 8.0}.items():
    workdir = tmp_path / name
    workdir.mkdir()
    text = configuration.to_json(
      'language_modeling', 'wikitext103', config_of('wikitext103')
    )
    configuration.save(workdir, text)
    (workdir / 'metrics.jsonl').write_text(
      '{"step": 1, "train": {"loss": 2.0}, "eval": {"loss": 1.0}}\n'
    )
    split = {
      'perplexity': test,
      'unigram': 100.0,
      'tokens': 100,
      'by_frequency': bands,
    }
    (workdir / analysis.SUMMARY).write_text(
      json.dumps(
        {
          'uniform': 1000,
          'splits': {'valid': split, 'test': split},
          'by_length': {'10': 3.0},
        }
      )
    )
  text = analysis.report(tmp_path / 'a', tmp_path / 'b')
  assert text.splitlines() == [
    'perplexity  valid  test   paper, valid  paper, test',
    'a           9.0    9.0    30.8          31.6',
    'b           8.0    8.0    30.8          31.6',
    'unigram     100.0  100.0',
    'uniform     1,000  1,000',
    '',
    'perplexity by count  > 10,000  < 1,000  all',
    'a                    3.0       1,234.5  9.0',
    'b                    3.0       1,234.5  9.0',
    'words                40        60       100',
    '',
    f'curve: {tmp_path / analysis.CURVES}',
    f'unroll length: {tmp_path / analysis.LENGTHS}',
  ]
  # Another text has other words to be frequent.
  other = tmp_path / 'b' / analysis.SUMMARY
  summary = json.loads(other.read_text()) | {'uniform': 2000}
  summary['splits']['test']['unigram'] = 200.0
  other.write_text(json.dumps(summary))
  text = analysis.report(tmp_path / 'a', tmp_path / 'b')
  assert text.splitlines()[3:7] == [
    'unigram, wikitext103 of 1,000 words  100.0  100.0',
    'uniform, wikitext103 of 1,000 words  1,000  1,000',
    'unigram, wikitext103 of 2,000 words  100.0  200.0',
    'uniform, wikitext103 of 2,000 words  2,000  2,000',
  ]
  path = tmp_path / 'a' / analysis.SUMMARY
  assert analysis.score(json.loads(path.read_text())) == 0.09
  # Where no lengths were asked for there is nothing to draw.
  whole = path.read_text()
  path.write_text(json.dumps(json.loads(whole) | {'by_length': {}}))
  assert analysis.LENGTHS not in analysis.report(tmp_path / 'a')
  path.write_text('{"splits": ')
  with pytest.raises(
    ValueError, match=r'perplexity\.json cannot be .*rewrites'
  ):
    analysis.report(tmp_path / 'a')
  path.unlink()
  with pytest.raises(ValueError, match='train it further'):
    analysis.report(tmp_path / 'a')


def test_command_line(tmp_path, capsys):
  def main(*arguments):
    return runs.main(analysis.report, analysis.__doc__, arguments)

  assert main('--help') == 0
  assert 'python -m experiments' in capsys.readouterr().out
  assert main() == 77
  assert main(str(tmp_path)) == 77
  assert 'not the folder of a run' in capsys.readouterr().err
