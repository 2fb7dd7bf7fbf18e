"""Tests experiments/babi_recurrent: presets, training and the common table."""

import ast
import functools
import subprocess
import sys

import haiku as hk
import jax
import jax.numpy as jnp
import pytest

from experiments import configuration
from experiments.babi import analysis
from experiments.babi_recurrent import sweep
from experiments.babi_recurrent import train
from rmc_jax import training
from rmc_jax.cores.build import CORES
from rmc_jax.cores.build import SPATIAL
from rmc_jax.cores.lstm import LSTMConfig
from rmc_jax.models.memn2n import Sizes
from tests.experiments.babi import runs

config_of = functools.partial(runs.config_of, train, sweep)


@pytest.mark.parametrize('preset', sweep.PRESETS)
def test_presets_are_valid(preset):
  config = config_of(preset)
  configuration.validate(config)
  assert config.run.num_steps % config.run.eval_every == 0


def test_sweep_is_plain_data():
  assert ast.literal_eval(repr(sweep.PRESETS)) == sweep.PRESETS


@pytest.mark.parametrize('runs', sweep.SWEEPS.values(), ids=sweep.SWEEPS)
def test_every_sweep_has_every_core(runs):
  presets = [sweep.PRESETS[run['preset']] for run in runs.values()]
  assert [preset['core']['name'] for preset in presets] == [
    name for name in CORES if name not in SPATIAL
  ]
  for preset in presets:  # The runs differ in their cores only.
    assert presets[0] | {'core': preset['core']} == preset


def test_cores_have_about_as_many_parameters():
  def count(config):
    network = hk.transform(
      lambda *inputs: train.make_model(config, Sizes(30, 10, 6))(*inputs)
    )
    shapes = jax.eval_shape(
      network.init,
      jax.random.key(0),
      jnp.zeros((1, 10, 6), int),
      jnp.zeros((1, 6), int),
    )
    return sum(leaf.size for leaf in jax.tree.leaves(shapes))

  for name in sweep.EN:
    assert 225_000 < count(config_of(name)) < 265_000, name


@pytest.mark.slow
@pytest.mark.parametrize('joint', [False, True])
def test_run_learns_and_resumes_to_the_same_errors(
  tmp_path, data_dir, capsys, joint
):
  # Four members, one for each device of the tests.
  config = runs.shorten(
    config_of('quick'),
    data_dir,
    epochs=10,
    joint=joint,
    restarts=4 if joint else 2,
    core=LSTMConfig(hidden_size=24),
    embedding_size=12,
    hidden_sizes=(16,),
    optimizer=training.OptimizerConfig(learning_rate=1e-2),
  )
  errors = runs.run_and_resume(train, 'babi_recurrent', config, tmp_path)
  names = ['joint'] * 4 if joint else ['task 2', 'task 15'] * 2
  assert [each['set'] for each in errors] == names
  score = analysis.score(errors)
  assert score.keys() == {2, 15}
  assert max(score.values()) < 0.6  # A guess has 80 %.
  out = capsys.readouterr().out
  assert '15: basic deduction' in out
  assert 'paper' not in out


@pytest.mark.parametrize(
  'fields, message',
  [
    ({'version': 'hn'}, "version must be one of en, en-10k. Got: 'hn'"),
    ({'restarts': 0}, 'restarts must be at least 1'),
    ({'tasks': (1, 21)}, 'tasks must be one of .* Got: 21'),
    (
      {'run': training.RunConfig(updates_per_call=2)},
      'run.updates_per_call must be 1',
    ),
    ({'embedding_size': 0}, 'embedding_size must be at least 1'),
    ({'hidden_sizes': (3, 0)}, r'hidden_sizes\[1\] must be at least 1'),
  ],
)
def test_invalid_configuration_is_refused(fields, message):
  with pytest.raises(configuration.ConfigurationError, match=message):
    configuration.validate(config_of('quick', **fields))


@pytest.mark.parametrize(
  'module, flags, code, expected',
  [
    (
      'train',
      ['--preset=quick_dnc', '--config.joint', '--print_config'],
      0,
      '"name": "dnc"',
    ),
    ('analysis', [], 77, 'experiments.babi_recurrent.analysis runs/'),
  ],
)
def test_programs_start(module, flags, code, expected):
  run = subprocess.run(
    [sys.executable, '-m', f'experiments.babi_recurrent.{module}', *flags],
    capture_output=True,
    text=True,
    check=False,
  )
  assert run.returncode == code
  assert expected in run.stdout + run.stderr
