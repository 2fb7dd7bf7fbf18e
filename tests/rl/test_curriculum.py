"""Tests rmc_jax/rl/curriculum.py."""

import jax
import numpy as np
import optax
import pytest

from rmc_jax import rl
from rmc_jax import training
from rmc_jax.training.log import read_metrics
from tests.rl.agents import make_network
from tests.rl.recall import Recall

STAGES = 1.0, 0.5, 0.0  # share of episodes that are truncated


def make_experiment(threshold, run, stages=STAGES):
  env = Recall()
  return rl.make_experiment(
    make_network(env),
    env,
    rl.Curriculum(stages, 'episode_length', threshold),
    agent=rl.AgentConfig(unroll_length=5),
    optimizer=optax.sgd(1e-3),
    batch_size=4,
    eval_episodes=200,
    eval_batch_size=40,
    run=run,
  )


def run_config(num_steps):
  return training.RunConfig(
    num_steps=num_steps, log_every=1, eval_every=1, checkpoint_every=1
  )


def evaluations(folder):
  lines = [line['eval'] for line in read_metrics(folder)]
  return [(line['stage'], line['episode_length']) for line in lines]


def test_stages_follow_the_evaluation_and_survive_a_restart(tmp_path):
  # Mean lengths: 5 where all are truncated, else 4 and 3.
  for num_steps in (1, 4):
    run = run_config(num_steps)
    training.train(tmp_path, make_experiment(3.5, run), run)
  stages, lengths = zip(*evaluations(tmp_path), strict=True)
  assert stages == (0, 1, 2, 2)
  np.testing.assert_allclose(lengths, [5, 4, 3, 3], atol=0.3)


def test_stage_stays_below_the_threshold(tmp_path):
  run = run_config(3)
  training.train(tmp_path, make_experiment(5.5, run), run)
  assert [stage for stage, _ in evaluations(tmp_path)] == [0, 0, 0]


def test_nan_does_not_end_a_stage():
  experiment = make_experiment(0.5, run_config(1))
  state = training.parallel.place_state(jax.jit(experiment.init)())
  means = {'episode_length': float('nan')}
  same = experiment.on_evaluation(state, means)
  assert int(same.network_state['stage']) == 0


def test_refuses_stages_that_cannot_end():
  with pytest.raises(ValueError, match='stages must contain at least one'):
    rl.Curriculum([])
  with pytest.raises(ValueError, match='metric must name what ends a stage'):
    rl.Curriculum([1, 2])


def test_rollouts_play_the_stage():
  experiment = make_experiment(4.5, run_config(1))
  state = training.parallel.place_state(jax.jit(experiment.init)())
  lengths = []
  for _ in range(2):
    # A mean over some 40 episodes.
    sums = np.zeros(2)
    for _ in range(12):
      state, metrics = experiment.update(state)
      sums += [float(part) for part in metrics['episode_length']]
    lengths.append(sums[0] / sums[1])
    state = experiment.on_evaluation(state, {'episode_length': 5.0})
  assert lengths[0] == 5
  assert lengths[1] < 4.8


def test_a_single_stage_needs_no_network_state():
  curriculum = rl.Curriculum([0.5])
  assert curriculum.init() == {}
  assert curriculum.params({}) == 0.5
