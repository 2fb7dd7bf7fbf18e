"""Tests rmc_jax/training/loop.py: streaks of non-finite updates."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rmc_jax.errors import Diverged
from rmc_jax.training import parallel
from rmc_jax.training.ensemble import create_ensemble
from rmc_jax.training.ensemble import make_ensemble_update
from rmc_jax.training.nonfinite import NonfiniteConfig
from rmc_jax.training.run import FunctionSource
from rmc_jax.training.update import per_example
from tests.training import toy_regression as toy
from tests.training.compared import bits
from tests.training.compared import metrics_of


def bad_batches(*steps):
  """Returns the toy host batches, non-finite at `steps`."""

  def batch_at(step):
    batch = toy.batch_at(step)
    return batch | {'y': batch['y'] * np.nan} if step in steps else batch

  return batch_at


def run_from_host(workdir, **changes):
  arguments = {
    'update': toy.host_update(),
    'updates_per_call': 1,
    'num_steps': 20,
    'log_every': 1,
    'checkpoint_every': 5,
  }
  return toy.run(workdir, **(arguments | changes))


def from_host(steps, state=None, start=0):
  """Returns the state after `steps` updates, without the loop."""
  state = parallel.place_state(toy.init() if state is None else state)
  for step in range(start, start + steps):
    batch = parallel.split_batch(toy.batch_at(step))
    state, _ = toy.host_update()(state, batch)
  return state


def test_skip_continues_and_counts(tmp_path, capsys):
  skip = NonfiniteConfig('skip', patience=3)
  state = run_from_host(
    tmp_path, nonfinite=skip, batch_at=bad_batches(8, 9, 11)
  )
  assert state.step == 20
  shares = [line['train']['nonfinite'] for line in metrics_of(tmp_path)]
  assert [step for step, share in enumerate(shares) if share] == [8, 9, 11]
  # Skipped updates change nothing but the step.
  wanted = from_host(8)
  wanted = wanted._replace(step=wanted.step + 2)
  wanted = from_host(1, wanted, start=10)
  wanted = wanted._replace(step=wanted.step + 1)
  wanted = from_host(8, wanted, start=12)
  assert bits(state) == bits(wanted)
  assert 'Step 9: 1 of the last 1 updates were not' in capsys.readouterr().out


@pytest.mark.parametrize('action', ['skip', 'roll_back'])
def test_streak_at_the_end_of_the_run_diverges(tmp_path, action):
  nonfinite = NonfiniteConfig(action, patience=4)
  bad = bad_batches(*range(16, 20))
  for _ in range(2):  # Starting again raises the same error.
    with pytest.raises(Diverged, match='4 calls in a row .* 20.* of step 15'):
      run_from_host(tmp_path, nonfinite=nonfinite, batch_at=bad)
    assert not (tmp_path / 'checkpoints/20').exists()


@pytest.mark.parametrize('crash_at', [None, 14, 17])
def test_roll_back_continues_with_the_next_data(tmp_path, crash_at, capsys):
  bad = bad_batches(12, 13, 14)

  def batch_at(step):
    nonlocal crash_at
    if step == crash_at:
      crash_at = None
      raise KeyError('a crash')
    return bad(step)

  arguments = {
    'nonfinite': NonfiniteConfig('roll_back', patience=3),
    'batch_at': batch_at,
  }
  if crash_at is not None:
    with pytest.raises(KeyError, match='a crash'):
      run_from_host(tmp_path, **arguments)
  state = run_from_host(tmp_path, **arguments)
  wanted = from_host(10)
  wanted = wanted._replace(step=wanted.step + 5)
  wanted = from_host(5, wanted, start=15)
  assert bits(state) == bits(wanted)
  assert 'continuing with the parameters of step 10' in capsys.readouterr().out


def test_roll_back_gives_the_source_the_restored_parameters(tmp_path):
  class Recording(FunctionSource):
    params = ()

    def set_params(self, params):
      self.params = bits(jax.device_get(params))

  def batch_at(step):
    if step in (10, 15):
      seen[step] = source.params
    return bad_batches(12, 13, 14)(step)

  seen, source = {}, Recording(batch_at)
  nonfinite = NonfiniteConfig('roll_back', patience=3)
  run_from_host(tmp_path, nonfinite=nonfinite, source=source)
  assert seen[10] == seen[15]


def test_members_of_an_ensemble_skip_data_after_a_roll_back(tmp_path):
  # Their data are functions of their own steps.
  def sample(key, network_state):
    drawn = jax.random.key_data(key)[0]
    return toy.sample(key) | {'bad': (drawn == bad).any()}

  def loss_fn(params, network_state, carry, key, batch):
    loss, aux = toy.loss_fn(params, network_state, carry, key, batch)
    return loss * jnp.where(batch['bad'].any(), jnp.nan, 1.0), aux

  def init():
    members = jax.tree.map(lambda x: jnp.stack([x] * 4), toy.init())
    return create_ensemble(members)

  keys = [jax.random.fold_in(toy.init().key, step) for step in (12, 13, 14)]
  bad = jnp.stack(
    [jax.random.key_data(jax.random.fold_in(key, 3))[0] for key in keys]
  )
  update = make_ensemble_update(
    loss_fn,
    toy.optimizer(),
    num_members=4,
    batch_size=toy.BATCH,
    make_batch=per_example(sample),
  )
  state = toy.run(
    tmp_path,
    init=init,
    update=update,
    evaluate=None,
    updates_per_call=1,
    nonfinite=NonfiniteConfig('roll_back', patience=3),
  )
  assert state.step == 40
  assert (state.carry.step == 40).all()


def test_second_roll_back_to_the_same_checkpoint_diverges(tmp_path):
  arguments = {
    'nonfinite': NonfiniteConfig('roll_back', patience=2),
    'batch_at': bad_batches(*range(11, 20)),
  }
  with pytest.raises(
    Diverged, match='up to step 15, after rolling back to step 10'
  ):
    run_from_host(tmp_path, **arguments)
