"""Tests experiments/nth_farthest/: presets, a short run, score, figures."""

import ast
import dataclasses
import json
import math
import pathlib

import haiku as hk
import jax
import numpy as np
import pytest

from experiments import configuration
from experiments.nth_farthest import analysis
from experiments.nth_farthest import sweep
from experiments.nth_farthest import train
from rmc_jax import training
from rmc_jax.analysis.runs import Run
from rmc_jax.training.log import read_metrics


def config_of(preset, **fields):
  config = configuration.with_preset(train.Config, sweep.PRESETS, preset)
  return dataclasses.replace(config, **fields)


@pytest.mark.parametrize('preset', sweep.PRESETS)
def test_presets_are_valid(preset):
  configuration.validate(config_of(preset))


def test_sweep_is_plain_data():
  tree = ast.parse(pathlib.Path(sweep.__file__).read_text())
  imported = [
    node
    for node in ast.walk(tree)
    if isinstance(node, ast.Import | ast.ImportFrom)
  ]
  assert not imported
  assert ast.literal_eval(repr(sweep.PRESETS)) == sweep.PRESETS


def test_grid_of_the_paper():
  grid = [
    preset['core']
    for name, preset in sweep.PRESETS.items()
    if '_slots_' in name
  ]
  assert len(grid) == 3 * 3 * 2 * 2
  for core in grid:
    units = core['mem_slots'] * core['num_heads'] * core['head_size']
    assert units == 2048
  assert {core['mem_slots'] for core in grid} == {1, 8, 16}
  assert {core['num_heads'] for core in grid} == {1, 8, 16}
  assert {core['gate_style'] for core in grid} == {'unit', 'memory'}


@pytest.mark.parametrize(
  'preset, core, read_out',
  [
    ('paper', 605_184, 723_976),
    # Too large to initialise on most machines.
    ('authors_as_shipped', 1_208_573_952, None),
  ],
)
def test_parameters_at_full_size(preset, core, read_out):
  config = config_of(preset)
  network = hk.transform(lambda x: train.make_model(config)(x))
  features = config.num_features + 3 * config.num_objects
  params = jax.eval_shape(
    network.init,
    jax.random.key(0),
    jax.ShapeDtypeStruct((1, config.num_objects, features), np.float32),
  )
  counts = {'relational_memory': 0, 'sequence_classifier': 0}
  for path, module in params.items():
    for leaf in module.values():
      counts[path.split('/')[0]] += math.prod(leaf.shape)
  assert counts['relational_memory'] == core
  if read_out is not None:
    assert counts['sequence_classifier'] == read_out


def short(preset, **fields):
  config = config_of(preset, batch_size=8, eval_examples=37, **fields)
  config.run = training.RunConfig(
    num_steps=6,
    updates_per_call=2,
    log_every=2,
    eval_every=4,
    checkpoint_every=4,
  )
  return config


def run_experiment(config, workdir):
  """Trains as the command line does."""
  with training.Runner(workdir) as runner:
    text = configuration.to_json('nth_farthest', 'quick', config)
    configuration.save(workdir, text)
    train.train(config, runner)


@pytest.fixture(scope='module')
def run(tmp_path_factory):
  """The configuration and workdir of a short run of the quick preset."""
  workdir = tmp_path_factory.mktemp('runs') / 'quick'
  config = short('quick')
  run_experiment(config, workdir)
  return config, workdir


def test_run_writes_metrics_and_figures(run):
  _, workdir = run
  records = read_metrics(workdir)
  assert [r['step'] for r in records] == [2, 4, 6]
  assert [r['step'] for r in records if 'eval' in r] == [4, 6]
  for record in records:
    assert record['train']['accuracy'] * 16 % 1 == 0  # 2 updates of 8.
  for record in records[1:]:
    # Each of the 37 examples counts once.
    right = record['eval']['accuracy'] * 37
    assert right == pytest.approx(round(right), abs=1e-9)
  for figure in (analysis.CURVE, analysis.ATTENTION):
    assert (workdir / figure).read_bytes().startswith(b'\x89PNG')


def test_recorded_attention_has_the_three_sequences_of_figure_3(run):
  config, workdir = run
  data = np.load(workdir / analysis.ATTENTION_DATA)
  steps, slots = config.num_objects, config.core.mem_slots
  assert data['attention'].shape == (
    3,
    steps,
    1,
    config.core.num_heads,
    slots,
    slots + 1,
  )
  # Rows of a softmax; each weight is rounded to 6e-8.
  np.testing.assert_allclose(data['attention'].sum(-1), 1.0, atol=1e-5)
  shown = [
    list(row).index(m) for row, m in zip(data['labels'], data['m'], strict=True)
  ]
  assert shown == [steps - 1, 0, (steps - 1) // 2]


def test_finished_run_is_not_trained_again(run, capsys):
  config, workdir = run
  before = (workdir / 'metrics.jsonl').read_text()
  run_experiment(config, workdir)
  assert (workdir / 'metrics.jsonl').read_text() == before
  printed = capsys.readouterr().out
  assert 'is done: 6 of 6 updates' in printed
  assert str(workdir / analysis.CURVE) in printed
  assert str(workdir / analysis.ATTENTION) in printed
  assert str(workdir / 'checkpoints') in printed


def test_lstm_runs_without_attention(run, tmp_path):
  _, first = run
  workdir = tmp_path / 'lstm'
  config = short('quick_lstm')
  run_experiment(config, workdir)
  assert not (workdir / analysis.ATTENTION).exists()
  text = analysis.report(workdir, first)
  assert text.count('accuracy') == 2
  assert 'lstm: accuracy' in text


def test_score_and_plateau():
  records = [
    {'step': 1, 'eval': {'accuracy': 0.95}},
    {'step': 2, 'eval': {'accuracy': 0.85}},
    {'step': 3, 'train': {'accuracy': 1.0}},
  ]
  run = Run(pathlib.Path('run'), 'nth_farthest', {}, records)
  assert analysis.score(run) == 0.85
  assert analysis.plateau(8) == pytest.approx(0.25)
  assert analysis.plateau(4) == pytest.approx(0.5)
  with pytest.raises(ValueError, match='no evaluation yet'):
    analysis.score(run._replace(records=records[2:]))


@pytest.mark.parametrize(
  'fields, message',
  [
    ({'num_objects': 0}, 'num_objects must be at least 1. Got: 0'),
    ({'order': 'furthest'}, "order must be one of farthest, nearest.*'furth"),
  ],
)
def test_invalid_config_raises(fields, message):
  with pytest.raises(configuration.ConfigurationError, match=message):
    configuration.validate(config_of('quick', **fields))


def test_saved_config_is_the_one_that_ran(run):
  config, workdir = run
  saved = json.loads((workdir / 'config.json').read_text())
  assert saved['config']['core']['mem_slots'] == config.core.mem_slots
