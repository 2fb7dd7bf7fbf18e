"""Fault 7: one process of a job gets batches that are not finite."""

import jax
import numpy as np
import pytest

from rmc_jax.training.checkpoint import Checkpointer
from tests.faults import drills
from tests.faults import trainer
from tests.training.test_loop import bits
from tests.training.test_loop import metrics_of

FLAGS = [
  '--config.run.checkpoint_every=1',
  '--config.run.keep_checkpoints=100',
  '--config.run.nonfinite.action=skip',
  '--config.run.nonfinite.patience=3',
]


def saved_states(workdir):
  """Returns step -> state, for every checkpoint."""
  target = jax.eval_shape(lambda: trainer.init(trainer.make_config()))
  states = {}
  for step in drills.saved_steps(workdir):
    with Checkpointer(workdir / 'checkpoints', keep=100) as saver:
      saver._steps = [step]
      states[step] = saver.restore(target).state
  return states


@pytest.mark.slow
@pytest.mark.multiprocess
def test_all_processes_skip_bad_updates_until_patience_ends(tmp_path):
  ended = drills.run(tmp_path, 'none', 'nan@12,20,21,22', flags=FLAGS)
  for code, output in ended:
    assert code == 76, output
    assert '3 calls in a row up to step 23' in output
  shares = [line['train']['nonfinite'] for line in metrics_of(tmp_path)]
  assert [step for step, share in enumerate(shares) if share] == [
    12,
    20,
    21,
    22,
  ]
  states = saved_states(tmp_path)
  # Nothing is saved within a streak.
  assert list(states) == [*range(1, 13), *range(14, 21)]
  for state in states.values():
    for leaf in jax.tree.leaves((state.params, state.opt_state)):
      assert np.all(np.isfinite(leaf))


def test_skipped_update_changes_nothing_but_the_step(tmp_path):
  config = trainer.make_config(13, dropout=False)
  config.run.nonfinite.action = 'skip'
  skipped = trainer.run(config, tmp_path / 'skipped', fault='nan@12')
  config = trainer.make_config(12, dropout=False)
  before = trainer.run(config, tmp_path / 'before')
  assert int(skipped.step) == 13
  assert bits(skipped._replace(step=before.step)) == bits(before)
