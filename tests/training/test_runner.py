"""Tests rmc_jax/training/runner.py; test_loop.py tests training with it."""

import signal

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rmc_jax.errors import ConfigurationError
from rmc_jax.errors import Preempted
from rmc_jax.training import runner as runner_lib
from rmc_jax.training.run import Experiment
from rmc_jax.training.run import RunConfig
from rmc_jax.training.run import Source
from rmc_jax.training.runner import Runner
from tests.training import toy_regression as toy


def test_runner_holds_the_workdir(tmp_path):
  with Runner(tmp_path / 'run') as first:
    assert first.workdir.is_dir()
    with pytest.raises(ConfigurationError, match='Another process'):
      Runner(tmp_path / 'run').__enter__()
  with Runner(tmp_path / 'run'):
    pass


def test_progress_prints_now_and_then(tmp_path, monkeypatch, capsys):
  monkeypatch.setattr(runner_lib, '_SECONDS_BETWEEN_LINES', 0.0)
  with Runner(tmp_path) as runner:
    runner.progress('valid', 1234, 5678)
    runner.progress('documents', 3, 0)
    monkeypatch.setattr(runner_lib, '_SECONDS_BETWEEN_LINES', 60.0)
    runner.progress('valid', 2345, 5678)
  assert capsys.readouterr().out == 'valid: 1,234 of 5,678\ndocuments: 3\n'


def test_progress_stops_after_a_signal(tmp_path):
  with Runner(tmp_path) as runner:
    signal.raise_signal(signal.SIGTERM)
    with pytest.raises(Preempted, match='Stopped at valid: 1 of 2'):
      runner.progress('valid', 1, 2)


class LiveSource(Source):
  """A source whose batches depend on the parameters it has received."""

  reproducible = False

  def __init__(self):
    self.received, self.entered = [], 0

  def __enter__(self):
    self.entered += 1
    return self

  def set_params(self, params):
    self.received.append(np.asarray(params['linear']['w']).copy())

  def batch(self, step):
    assert len(self.received) == step % 4 + 1
    return toy.batch_at(step)


def test_source_receives_parameters_before_every_batch(tmp_path, capsys):
  source = LiveSource()
  experiment = Experiment(toy.init, toy.host_update(), source=source)
  runner_lib.train(tmp_path, experiment, RunConfig(num_steps=4))
  assert source.entered == 1
  assert len(source.received) == 5  # The last ones follow the last batch.
  assert not np.array_equal(source.received[0], source.received[1])
  assert 'not reproducible' not in capsys.readouterr().out
  source.received.clear()
  runner_lib.train(tmp_path, experiment, RunConfig(num_steps=8))
  assert 'not reproducible' in capsys.readouterr().out


def test_on_evaluation_changes_the_state(tmp_path):
  seen = []

  def on_evaluation(state, means):
    seen.append(means['error'])
    zeros = jax.tree.map(lambda w: w * 0, state.params)
    return state._replace(params=zeros)

  experiment = Experiment(
    toy.init, toy.update(), toy.evaluate(), on_evaluation=on_evaluation
  )
  run = RunConfig(num_steps=8, updates_per_call=2, eval_every=4)
  state = runner_lib.train(tmp_path, experiment, run)
  assert len(seen) == 2
  chex.assert_trees_all_equal(
    jax.device_get(state.params), jax.device_get(toy.init().params)
  )


def test_initial_state_is_traced_once_and_compiled(tmp_path):
  traced = []

  def init():
    traced.append(isinstance(jnp.zeros(()), jax.core.Tracer))
    return toy.init()

  toy.run(tmp_path, num_steps=2, init=init)
  assert traced == [True]
