"""Fault 7: batches that are not finite, fed to one process of a job."""

import jax
import numpy as np
import pytest

from rmc_jax.training.checkpoint import Checkpointer
from tests.faults import drills
from tests.faults import trainer
from tests.training.test_loop import bits
from tests.training.test_loop import metrics_of

FLAGS = [
  '--config.checkpoint_every=1',
  '--config.keep_checkpoints=100',
  '--config.nonfinite.action=skip',
  '--config.nonfinite.patience=3',
]


def states_saved(workdir):
  """Step -> state, of every checkpoint there is."""
  target = jax.eval_shape(lambda: trainer.init(trainer.Config()))
  states = {}
  for step in drills.steps_saved(workdir):
    with Checkpointer(workdir / 'checkpoints', keep=100) as saver:
      states[step] = saver._read(step, target)
  return states


@pytest.mark.slow
@pytest.mark.multiprocess
def test_a_bad_update_is_left_out_everywhere_and_many_end_the_run(tmp_path):
  ended = drills.run(tmp_path, 'none', 'nan@12,20,21,22', flags=FLAGS)
  for code, said in ended:
    assert code == 76, said
    assert '3 calls in a row up to step 23' in said
  shares = [line['train']['nonfinite'] for line in metrics_of(tmp_path)]
  assert [step for step, share in enumerate(shares) if share] == [
    12,
    20,
    21,
    22,
  ]
  states = states_saved(tmp_path)
  # None within a streak.
  assert list(states) == [*range(1, 13), *range(14, 21)]
  for state in states.values():
    for leaf in jax.tree.leaves((state.params, state.opt_state)):
      assert np.all(np.isfinite(leaf))


def test_what_is_left_out_leaves_no_trace(tmp_path):
  """Bit for bit the state from before it, but for the step."""
  config = trainer.Config(num_steps=13, dropout=False)
  config.nonfinite.action = 'skip'
  skipped = trainer.train(config, tmp_path / 'skipped', fault='nan@12')
  config = trainer.Config(num_steps=12, dropout=False)
  before = trainer.train(config, tmp_path / 'before')
  assert int(skipped.step) == 13
  assert bits(skipped._replace(step=before.step)) == bits(before)
