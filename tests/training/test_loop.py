"""Tests rmc_jax/training/loop.py: intervals, resuming, stops and errors."""

import functools
import os
import re
import signal
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rmc_jax.errors import ConfigurationError
from rmc_jax.errors import Diverged
from rmc_jax.errors import Preempted
from rmc_jax.training import goodput
from rmc_jax.training import interval
from rmc_jax.training import manifest
from rmc_jax.training.checkpoint import Checkpointer
from rmc_jax.training.checkpoint import StructureMismatch
from rmc_jax.training.log import FILE_NAME
from tests.training import jobs
from tests.training import toy_regression as toy
from tests.training.compared import bits
from tests.training.compared import metrics_of
from tests.training.replicas import with_flipped_bit


def resumed_at(output):
  """Returns the step at which a run resumes; None for a new run."""
  found = re.search(r'resuming at step (\d+) of 40', output)
  return int(found[1]) if found else None


def signal_before(step, number=signal.SIGTERM):
  """Returns the toy update, which sends a signal before the call at `step`."""

  def update(state, batch=None):
    if int(state.step) == step:
      os.kill(os.getpid(), number)
    return toy.update()(state, batch)

  return update


@pytest.fixture(scope='module')
def uninterrupted(tmp_path_factory):
  """The state and workdir of an uninterrupted run of 40 updates."""
  workdir = tmp_path_factory.mktemp('uninterrupted')
  return toy.run(workdir), workdir


def test_intervals(uninterrupted):
  state, workdir = uninterrupted
  assert int(state.step) == 40
  lines = metrics_of(workdir)
  assert [line['step'] for line in lines] == list(range(2, 41, 2))
  assert [line['step'] for line in lines if 'eval' in line] == [
    6,
    12,
    18,
    24,
    30,
    36,
    40,
  ]
  names = {p.name for p in (workdir / 'checkpoints').iterdir()}
  assert names == {'20', '30', '40'}  # keep_checkpoints is 3.
  errors = [line['eval']['error'] for line in lines if 'eval' in line]
  assert errors == sorted(errors, reverse=True)


def test_interval_within_a_call_is_due_at_its_end(tmp_path):
  toy.run(
    tmp_path,
    num_steps=20,
    updates_per_call=4,
    log_every=5,
    eval_every=100,
    checkpoint_every=100,
  )
  assert [line['step'] for line in metrics_of(tmp_path)] == [8, 12, 16, 20]


@pytest.mark.parametrize('stop', [2, 10, 13 * 2])
@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGINT])
def test_resume_after_a_signal_is_bit_exact(
  tmp_path, uninterrupted, capsys, stop, number
):
  handler = signal.getsignal(number)
  with pytest.raises(Preempted, match=f'step {stop + 2} of 40') as stopped:
    toy.run(tmp_path, update=signal_before(stop, number))
  assert stopped.value.exit_code == 75
  assert signal.getsignal(number) is handler
  state = toy.run(tmp_path)
  assert resumed_at(capsys.readouterr().out) == stop + 2
  assert bits(state) == bits(uninterrupted[0])
  assert metrics_of(tmp_path) == metrics_of(uninterrupted[1])


def test_signal_during_the_last_call_is_ignored(tmp_path, uninterrupted):
  state = toy.run(tmp_path, update=signal_before(38))
  assert bits(state) == bits(uninterrupted[0])


def test_second_signal_interrupts(tmp_path):
  # Set explicitly, because shells make background jobs ignore SIGINT.
  usual = signal.default_int_handler
  former = signal.signal(signal.SIGINT, usual)

  def update(state, batch=None):
    os.kill(os.getpid(), signal.SIGINT)
    # Two signals at once may be delivered as one.
    for _ in range(1000):
      if signal.getsignal(signal.SIGINT) is usual:
        break
      time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(10.0)  # The interrupt arrives here.
    return toy.update()(state, batch)

  try:
    with pytest.raises(KeyboardInterrupt):
      toy.run(tmp_path, update=update)
  finally:
    signal.signal(signal.SIGINT, former)


def test_trains_from_another_thread(tmp_path):
  steps = []
  thread = threading.Thread(
    target=lambda: steps.append(int(toy.run(tmp_path, num_steps=4).step))
  )
  thread.start()
  thread.join()
  assert steps == [4]


def test_host_batches_are_loaded_once_per_step(tmp_path):
  loaded = []

  def batch_at(step):
    loaded.append(step)
    if step == 7 and len(loaded) == 8:
      os.kill(os.getpid(), signal.SIGTERM)
    return toy.batch_at(step)

  arguments = {
    'update': toy.host_update(),
    'updates_per_call': 1,
    'num_steps': 12,
  }
  once = toy.run(tmp_path / 'once', batch_at=toy.batch_at, **arguments)
  with pytest.raises(Preempted):
    toy.run(tmp_path / 'twice', batch_at=batch_at, **arguments)
  twice = toy.run(tmp_path / 'twice', batch_at=batch_at, **arguments)
  assert loaded == list(range(12))
  assert bits(once) == bits(twice)
  assert metrics_of(tmp_path / 'once') == metrics_of(tmp_path / 'twice')


def test_finished_run_changes_nothing(tmp_path, capsys):
  state = toy.run(tmp_path, num_steps=4)
  before = sorted(p for p in tmp_path.rglob('*'))
  capsys.readouterr()
  again = toy.run(tmp_path, num_steps=4)
  assert 'is done: 4 of 4 updates' in capsys.readouterr().out.replace('\n', '')
  assert bits(again) == bits(state)
  assert sorted(p for p in tmp_path.rglob('*')) == before


def test_finished_run_can_be_extended(tmp_path, uninterrupted):
  toy.run(tmp_path, num_steps=20)
  assert bits(toy.run(tmp_path)) == bits(uninterrupted[0])


@functools.cache  # So that toy.update compiles it once.
def loss_that_is_nan_at(step):
  """Returns the toy loss with a NaN gradient at `step`."""

  def loss_fn(params, network_state, carry, key, batch):
    loss, aux = toy.loss_fn(params, network_state, carry, key, batch)
    calls = network_state['calls']
    return loss * jnp.where(calls == step, jnp.nan, 1.0), aux

  return loss_fn


def test_nan_stops_the_run_and_keeps_the_good_updates(tmp_path, uninterrupted):
  update = toy.update(loss_fn=loss_that_is_nan_at(13))
  with pytest.raises(Diverged, match='1 of the 2 updates up to step 14') as bad:
    toy.run(tmp_path, update=update)
  assert bad.value.exit_code == 76
  lines = metrics_of(tmp_path)
  assert lines[:-1] == metrics_of(uninterrupted[1])[:6]
  assert lines[-1]['step'] == 14
  assert lines[-1]['train']['nonfinite'] == 0.5
  assert lines[-1]['train']['loss'] is None

  # The saved state is that after 13 updates.
  with Checkpointer(tmp_path / 'checkpoints') as saver:
    step, kept, _ = saver.restore(jax.eval_shape(toy.init))
  wanted = toy.run(tmp_path / 'good', num_steps=13, updates_per_call=1)
  assert step == kept.step == 14
  assert bits(kept._replace(step=wanted.step)) == bits(wanted)


def test_call_in_flight_changes_neither_state_nor_metrics(
  tmp_path, monkeypatch, uninterrupted
):
  toy.run(tmp_path / 'blocking', log_every=6)
  # As on an accelerator: the loop reads the metrics of the previous call.
  monkeypatch.setattr(interval, '_calls_ahead', lambda: 1)
  state = toy.run(tmp_path / 'ahead', log_every=6)
  assert bits(state) == bits(uninterrupted[0])
  lines = metrics_of(tmp_path / 'ahead')
  assert lines == metrics_of(tmp_path / 'blocking')
  assert [line['step'] for line in lines] == [6, 12, 18, 24, 30, 36, 40]

  update = toy.update(loss_fn=loss_that_is_nan_at(13))
  with pytest.raises(Diverged, match='1 of the 2 updates up to step 14'):
    toy.run(tmp_path / 'bad', update=update, log_every=6)
  lines = metrics_of(tmp_path / 'bad')
  assert [line['step'] for line in lines] == [6, 12, 16]
  # The update after the bad one is bad too: its step count was not applied.
  assert lines[-1]['train']['nonfinite'] == 3 / 4


def test_line_holds_the_means_of_its_interval(tmp_path, uninterrupted):
  toy.run(tmp_path, log_every=10)
  singles = [line['train'] for line in metrics_of(uninterrupted[1])]
  for i, line in enumerate(metrics_of(tmp_path)):
    if 'train' in line:
      calls = singles[line['step'] // 2 - 5 : line['step'] // 2]
      for name, mean in line['train'].items():
        # Calls have equal weights; float64 sums in another order.
        assert mean == pytest.approx(
          np.mean([call[name] for call in calls]), rel=1e-12
        ), (i, name)


@pytest.mark.parametrize('stop', [14, 22])
def test_stop_within_an_interval_loses_no_metrics(tmp_path, stop):
  toy.run(tmp_path / 'once', log_every=10)
  with pytest.raises(Preempted):
    toy.run(tmp_path / 'twice', log_every=10, update=signal_before(stop))
  toy.run(tmp_path / 'twice', log_every=10)
  assert metrics_of(tmp_path / 'twice') == metrics_of(tmp_path / 'once')


def test_update_of_another_number_of_updates_is_refused(tmp_path):
  with pytest.raises(
    ConfigurationError, match='to step 5, not 10.* updates_per_call .* 2'
  ):
    toy.run(tmp_path, update=toy.update(1), updates_per_call=2)
  assert not (tmp_path / 'checkpoints/10').exists()


def test_diverged_replicas_end_the_run_before_the_next_save(tmp_path):
  def update(state, batch=None):
    state, metrics = toy.update()(state, batch)
    if int(state.step) == 22:
      params = state.params['linear']
      flipped = with_flipped_bit(params['w'], replica=2)
      params = {'linear': params | {'w': flipped}}
      state = state._replace(params=params)
    return state, metrics

  with pytest.raises(RuntimeError, match="These leaves differ: .*params.*'w'"):
    toy.run(tmp_path, update=update, check_replicas_every=6)
  assert metrics_of(tmp_path)[-1]['step'] == 22
  names = {p.name for p in (tmp_path / 'checkpoints').iterdir()}
  assert names == {'10', '20'}


def test_ledger_adds_up_to_the_wall_time(tmp_path):
  before = time.time()
  toy.run(tmp_path, num_steps=20)
  toy.run(tmp_path, num_steps=40)
  wall = time.time() - before
  starts = goodput.read_ledger(tmp_path)
  assert [(s['from_step'], s['step']) for s in starts] == [(0, 20), (20, 40)]
  total = goodput.summarize(starts)
  # The first start may begin with the process.
  total['start'] -= max(0.0, before - starts[0]['since'])
  assert sum(total.values()) == pytest.approx(wall, rel=0.02, abs=0.1)
  assert total['lost'] < 0.05  # From the last mark to the last line.
  for kind in ('start', 'compile', 'step', 'evaluation', 'checkpoint'):
    assert total[kind] > 0, kind


def test_diverging_at_every_start_keeps_the_good_checkpoints(tmp_path, capsys):
  update = toy.update(loss_fn=loss_that_is_nan_at(24))
  for start in range(5):
    with pytest.raises(
      Diverged, match='2 of the 2 .* step 26 .* fail in the same way'
    ):
      toy.run(tmp_path, update=update)
    assert resumed_at(capsys.readouterr().out) == (20 if start else None)
    assert metrics_of(tmp_path)[-1]['train']['nonfinite'] == 1
  names = {p.name for p in (tmp_path / 'checkpoints').iterdir()}
  assert names == {'10', '20'}


def test_changed_model_raises_and_changes_nothing(tmp_path):
  toy.run(tmp_path, num_steps=4)
  before = (tmp_path / FILE_NAME).read_bytes()
  with pytest.raises(StructureMismatch, match=r'linear/w: float32\[3, 5\] in'):
    toy.run(tmp_path, num_steps=8, init=lambda: toy.init(outputs=7))
  assert (tmp_path / FILE_NAME).read_bytes() == before
  assert int(toy.run(tmp_path, num_steps=8).step) == 8


@pytest.mark.parametrize(
  'name', ['log_every', 'eval_every', 'checkpoint_every', 'num_steps']
)
def test_interval_below_one_raises(tmp_path, name):
  with pytest.raises(ValueError, match=f'{name} must .* Got: 0'):
    toy.run(tmp_path, **{name: 0})


def test_length_that_calls_do_not_reach_raises(tmp_path):
  with pytest.raises(ConfigurationError, match='num_steps 41 .* calls of 2'):
    toy.run(tmp_path, num_steps=41)


def test_second_trainer_in_the_workdir_raises(tmp_path, uninterrupted):
  def update(state, batch=None):
    if int(state.step) == 14:
      with pytest.raises(ConfigurationError, match='Another process is trai'):
        toy.run(tmp_path)
    return toy.update()(state, batch)

  state = toy.run(tmp_path, update=update)
  assert bits(state) == bits(uninterrupted[0])
  assert metrics_of(tmp_path) == metrics_of(uninterrupted[1])


def test_crash_completes_the_save_in_progress(tmp_path, capsys):
  def update(state, batch=None):
    if int(state.step) == 10:
      raise ZeroDivisionError
    return toy.update()(state, batch)

  with pytest.raises(ZeroDivisionError):
    toy.run(tmp_path, update=update)
  assert (tmp_path / 'checkpoints' / '10' / manifest.FILE_NAME).exists()
  assert resumed_at(capsys.readouterr().out) is None
  with pytest.raises(Preempted, match='step 12'):
    toy.run(tmp_path, update=signal_before(10))
  assert resumed_at(capsys.readouterr().out) == 10


def train_toy(workdir, *moments, step=0, devices=4):
  """Runs `train_toy.py`, as a job if there are several moments."""
  return jobs.run(
    ['-m', 'tests.training.train_toy'],
    [[workdir, moment, step] for moment in moments],
    devices=devices,
  )


@pytest.mark.slow
def test_resume_after_kills_is_bit_exact(tmp_path, uninterrupted, capsys):
  workdir = tmp_path / 'killed'
  for moment, step, resumes_at in [
    ('before_update', 6, {None}),
    ('in_save', 10, {None}),
    ('in_line', 14, {None}),
    # The save may or may not complete before the kill.
    ('later_in_save', 20, {None, 10}),
    ('before_manifest', 30, {10, 20}),
  ]:
    ((code, output),) = train_toy(workdir, moment, step=step)
    assert code == -signal.SIGKILL, moment + output
    assert resumed_at(output) in resumes_at, moment + output
  capsys.readouterr()
  state = toy.run(workdir)
  # The save of step 30 waits for that of step 20.
  assert resumed_at(capsys.readouterr().out) == 20
  assert bits(state) == bits(uninterrupted[0])
  assert metrics_of(workdir) == metrics_of(uninterrupted[1])
