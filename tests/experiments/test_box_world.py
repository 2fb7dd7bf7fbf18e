"""Tests experiments/box_world: presets, training, table, curriculum, files."""

import ast
import dataclasses
import json

import jax
import numpy as np
from PIL import Image
import pytest

from experiments import configuration
from experiments.box_world import analysis
from experiments.box_world import sweep
from experiments.box_world import train
from rmc_jax import training
from rmc_jax.analysis.runs import read_run
from rmc_jax.analysis.runs import Run
from rmc_jax.errors import ConfigurationError


def config_of(preset):
  return configuration.with_preset(train.Config, sweep.PRESETS, preset)


def short(**fields):
  """Returns a small configuration of `quick` for some updates."""
  config = config_of('quick')
  config.core = dataclasses.replace(config.core, hidden_size=7)
  config.batch_size, config.agent.unroll_length = 8, 5
  config.eval_episodes, config.eval_batch_size = 20, 8
  config.run.num_steps = config.run.eval_every = 4
  config.run.updates_per_call = config.run.log_every = 2
  return dataclasses.replace(config, **fields)


def run_here(config, workdir):
  workdir.mkdir(parents=True, exist_ok=True)
  configuration.save(
    workdir, configuration.to_json('box_world', 'quick', config)
  )
  with training.Runner(workdir) as runner:
    train.train(config, runner)


@pytest.mark.parametrize('preset', sweep.PRESETS)
def test_presets_are_valid(preset):
  configuration.validate(config_of(preset))


def test_sweeps_are_plain_data_of_presets():
  assert ast.literal_eval(repr(sweep.PRESETS)) == sweep.PRESETS
  for runs in sweep.SWEEPS.values():
    assert {run['preset'] for run in runs.values()} <= sweep.PRESETS.keys()


@pytest.mark.parametrize(
  'preset, size',
  [
    ('paper', 505_805),
    ('paper_conv_lstm', 102_153),
    ('paper_conv_lstm_large', 504_606),
  ],
)
def test_agents_of_the_paper_have_their_number_of_parameters(preset, size):
  network = train.make_network(config_of(preset))
  params = jax.eval_shape(network.init, jax.random.key(0))
  assert training.count_parameters(params) == size


def test_coordinates_may_be_those_of_the_room():
  config = short(coordinates='room')
  configuration.validate(config)
  params = jax.eval_shape(train.make_network(config).init, jax.random.key(0))
  # Not the two coordinates, in place of those of the viewport.
  assert params['actor_critic/conv_0']['w'].shape == (2, 2, 6, 16)
  assert params['lstm/input_0']['w'].shape == (5 * 5 * (16 + 2), 4 * 7)
  with pytest.raises(ConfigurationError, match='coordinates must be one of'):
    configuration.validate(short(coordinates='absolute'))


def test_trains_reports_and_shows_the_agent(tmp_path, capsys):
  core = config_of('paper').core
  core.head_size, core.mem_slots, core.num_heads = 3, 3, 2
  config = short(core=core, max_distractors=2, max_solution=(3,))
  run_here(config, tmp_path)
  out = capsys.readouterr().out
  (line,) = [
    line['eval']
    for line in read_run(tmp_path, 'box_world').records
    if 'eval' in line
  ]
  assert f'{line["solved"]:.1%} of 20 new levels solved' in out
  for name in ('1 boxes', '3 boxes', '0 distractors', '2 distractors'):
    assert f'solved_{name.replace(" ", "_")}' in line
  assert 'at most 3 boxes: 90% solved not yet' in out
  with Image.open(tmp_path / analysis.EPISODE) as episode:
    # To the right the attention of 3 slots: columns of 3 slots and the input,
    # and two gaps.
    cell = 14 * 16 // 3
    assert episode.size == (14 * 16 + 16 + 4 * cell + cell // 4, 14 * 16)
  with Image.open(tmp_path / analysis.CURVE) as curve:
    assert curve.size > (400, 200)


def test_curriculum_advances_with_the_evaluations(tmp_path):
  config = short(max_solution=(1, 2, 4), stage_threshold=0.0)
  config.run.eval_every, config.run.num_steps = 2, 6
  run_here(config, tmp_path)
  stages = [
    line['eval']['stage']
    for line in read_run(tmp_path, 'box_world').records
    if 'eval' in line
  ]
  assert stages == [0, 1, 2]


def test_solved_groups_partition_the_levels(tmp_path):
  config = short(max_solution=(2,), max_distractors=1)
  experiment = train.make_experiment(config)
  state = training.parallel.place_state(jax.jit(experiment.init)())
  sums = experiment.evaluate(state)
  for names in (('1_boxes', '2_boxes'), ('0_distractors', '1_distractors')):
    totals, counts = np.transpose([sums[f'solved_{name}'] for name in names])
    assert totals.sum() == sums['solved'][0]
    assert counts.sum() == sums['solved'][1] == config.eval_episodes
    assert (counts > 0).all()


def lines_of(*evaluations):
  return [
    {'step': 10 * (i + 1), 'eval': {'episode_return': 1.0, **evaluation}}
    for i, evaluation in enumerate(evaluations)
  ]


def run_of(records, **fields):
  config = json.loads(json.dumps(dataclasses.asdict(short(**fields))))
  return Run(None, 'box_world', config, records)


def test_steps_to_solve_are_at_first_evaluation_above_threshold():
  run = run_of(
    lines_of(
      {'stage': 0, 'solved': 0.5},
      {'stage': 0, 'solved': 0.92},
      {'stage': 1, 'solved': 0.3},
      {'stage': 1, 'solved': 0.9},
      {'stage': 2, 'solved': 0.89},
    ),
    max_solution=(1, 2, 4),
  )
  # Updates of 8 environments and 5 steps.
  assert analysis.steps_to_solve(run) == [(1, 800), (2, 1600), (4, None)]
  assert analysis.score(run) == 0.89


def test_steps_to_solve_without_a_curriculum():
  run = run_of(lines_of({'solved': 0.95}, {'solved': 0.8}))
  assert analysis.steps_to_solve(run) == [(1, 400)]


@pytest.mark.parametrize(
  'fields, message',
  [
    ({'max_solution': ()}, 'max_solution must have one number per stage'),
    ({'stage_threshold': 1.5}, 'stage_threshold must be in .* Got: 1.5'),
    ({'cells_as_rows': True}, 'cells_as_rows must be False'),
    ({'max_solution': (1, 9)}, 'max_solution must be .* Got: 9'),
    ({'view': 'all'}, "view must be .* Got: 'all'"),
    ({'rules': 'mine'}, "Got: 'mine'"),
    ({'eval_episodes': 0}, 'eval_episodes must be at least 1'),
  ],
)
def test_refuses_values_out_of_range(fields, message):
  with pytest.raises(ConfigurationError, match=message):
    configuration.validate(short(**fields))
