"""Tests experiments/mini_pacman: presets, training, report, random play."""

import ast
import dataclasses
import shutil

import jax
import jax.numpy as jnp
import numpy as np
from PIL import Image
import pytest

from experiments import configuration
from experiments.mini_pacman import analysis
from experiments.mini_pacman import sweep
from experiments.mini_pacman import train
from rmc_jax import envs
from rmc_jax import rl
from rmc_jax import training
from rmc_jax.analysis.runs import read_run
from rmc_jax.analysis.runs import Run
from rmc_jax.errors import ConfigurationError
from rmc_jax.models.actor_critic import AgentOutput


def config_of(preset):
  return configuration.with_preset(train.Config, sweep.PRESETS, preset)


def short(preset='quick', **fields):
  """Returns a small configuration for some updates."""
  config = config_of(preset)
  config.batch_size, config.agent.unroll_length = 8, 5
  config.eval_episodes, config.eval_batch_size = 12, 8
  config.max_steps = 30
  config.run.num_steps = config.run.eval_every = 4
  config.run.updates_per_call = config.run.log_every = 2
  return dataclasses.replace(config, **fields)


def run_here(config, workdir):
  workdir.mkdir(parents=True, exist_ok=True)
  configuration.save(
    workdir, configuration.to_json('mini_pacman', 'quick', config)
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


@pytest.mark.parametrize('preset', ['quick', 'quick_full_lstm'])
def test_trains_reports_and_shows_the_agent(preset, tmp_path, capsys):
  run_here(short(preset), tmp_path)
  out = capsys.readouterr().out
  run = read_run(tmp_path, 'mini_pacman')
  (line,) = [line['eval'] for line in run.records if 'eval' in line]
  assert f'mean return {line["episode_return"]:.1f} in 12 episodes' in out
  assert 'random play' not in out  # The table is for longer episodes.
  # Four updates of 8 environments and 5 steps.
  assert 'after 160 steps' in out
  with Image.open(tmp_path / analysis.EPISODE) as episode:
    width, height = episode.size
    assert height == 15 * 16
    # The attention of the relational memory is to the right.
    assert (width > 19 * 16) == (preset == 'quick')
  assert (tmp_path / analysis.CURVE).stat().st_size > 1000


def test_several_runs_in_one_figure(tmp_path, capsys):
  run_here(short('quick_lstm'), tmp_path / 'one')
  shutil.copytree(tmp_path / 'one', tmp_path / 'two')
  capsys.readouterr()
  text = analysis.report(tmp_path / 'one', tmp_path / 'two')
  assert text.startswith('one: mean return')
  assert '\ntwo: mean return' in text


def run_of(tmp_path, mean, **fields):
  config = dataclasses.replace(short(max_steps=3000), **fields)
  line = {'episode_return': mean, 'episode_length': 50.0}
  return Run(
    tmp_path,
    'mini_pacman',
    dataclasses.asdict(config),
    [{'step': 3, 'eval': line}],
  )


@pytest.mark.parametrize(
  'mean, fields, expected',
  [
    (20.5, {}, 'random play 6.7 (learned: 3 times as much)'),
    (19.5, {}, 'random play 6.7 (not learned: 3 times as much)'),
    (29.5, {'rules': 'public'}, 'random play 10.0 (not learned'),
    (-3.0, {'mode': 'hunt'}, 'random play -19.9'),
  ],
)
def test_return_is_next_to_that_of_random_play(
  tmp_path, monkeypatch, mean, fields, expected
):
  run = run_of(tmp_path, mean, **fields)
  monkeypatch.setattr(analysis.runs_lib, 'read_run', lambda *_: run)
  assert expected in analysis.report(tmp_path)
  assert analysis.score(run) == mean


def test_runs_of_different_games_are_refused(tmp_path, monkeypatch):
  runs = iter([run_of(tmp_path, 1.0), run_of(tmp_path, 1.0, mode='rush')])
  monkeypatch.setattr(analysis.runs_lib, 'read_run', lambda *_: next(runs))
  with pytest.raises(ValueError, match='must be of one mode and rules'):
    analysis.report(tmp_path, tmp_path)


def test_run_without_an_evaluation_is_refused(tmp_path, monkeypatch):
  run = run_of(tmp_path, 1.0)._replace(records=[{'step': 1, 'train': {}}])
  monkeypatch.setattr(analysis.runs_lib, 'read_run', lambda *_: run)
  with pytest.raises(ValueError, match='has no evaluation yet'):
    analysis.report(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize('rules', analysis.RANDOM)
@pytest.mark.parametrize('mode', analysis.RANDOM['paper'])
def test_random_play_has_the_returns_of_the_table(rules, mode):
  env, params = envs.make('mini_pacman', rules, mode=mode)

  def apply(params, inputs, state):
    shape = inputs.first.shape
    logits = jnp.zeros((*shape, env.num_actions))
    return AgentOutput(logits, jnp.zeros(shape)), state

  random = rl.Network(None, apply, None, lambda params, size: jnp.zeros(size))
  keys = jax.random.split(jax.random.key(9), 1000)
  returns = jax.jit(
    lambda keys: rl.play_episodes(random, (), env, params, keys)
  )(keys).episode_return
  error = np.std(returns) / np.sqrt(len(keys))
  # Four standard errors of both samples, and the rounding of the table.
  assert abs(np.mean(returns) - analysis.RANDOM[rules][mode]) < 5 * error + 0.05


@pytest.mark.parametrize(
  'fields, message',
  [
    ({'mode': 'easy'}, "Got: 'easy'"),
    ({'view': 'all'}, "view must be .* Got: 'all'"),
    ({'max_steps': 0}, 'max_steps must be at least 1'),
    ({'strides': (1, 2)}, 'strides must have one number per convolution'),
    ({'eval_batch_size': 0}, 'eval_batch_size must be at least 1'),
  ],
)
def test_refuses_values_out_of_range(fields, message):
  with pytest.raises(ConfigurationError, match=message):
    configuration.validate(short(**fields))
