"""The training loop: restore or begin, update, log, evaluate, save, stop.

It receives functions and knows no task. What is computed depends on the state
and the step alone, so a run that was stopped anywhere goes on as if it had not
been: on the CPU bit for bit, on a GPU only with
XLA_FLAGS=--xla_gpu_deterministic_ops=true, without which it adds in any order.
"""

from collections import deque
from collections.abc import Callable
from collections.abc import Iterator
from contextlib import contextmanager
from contextlib import nullcontext
from contextlib import suppress
import pathlib

import jax
import numpy as np

from rmc_jax import metrics as metrics_lib
from rmc_jax.errors import ConfigurationError
from rmc_jax.errors import Diverged
from rmc_jax.errors import Preempted
from rmc_jax.metrics import SumsAndCounts
from rmc_jax.training import distributed
from rmc_jax.training import goodput
from rmc_jax.training import lock
from rmc_jax.training import parallel
from rmc_jax.training import watchdog
from rmc_jax.training.checkpoint import Checkpointer
from rmc_jax.training.log import MetricsLog
from rmc_jax.training.nonfinite import NonfiniteConfig
from rmc_jax.training.nonfinite import Streak
from rmc_jax.training.preemption import Preemption
from rmc_jax.training.progress import Progress
from rmc_jax.training.progress import say
from rmc_jax.training.state import TrainState
from rmc_jax.types import ArrayTree

CHECKPOINTS = 'checkpoints'
# Between two writes of the ledger, each of which waits for the disk.
_LEDGER_SECONDS = 2.0


def train(
  workdir: str | pathlib.Path,
  *,
  init: Callable[[], TrainState],
  update: Callable[..., tuple[TrainState, SumsAndCounts]],
  num_steps: int,
  updates_per_call: int = 1,
  batch_at: Callable[[int], ArrayTree] | None = None,
  evaluate: Callable[[TrainState], SumsAndCounts] | None = None,
  log_every: int = 100,
  eval_every: int = 1000,
  checkpoint_every: int = 1000,
  keep_checkpoints: int = 3,
  check_replicas_every: int = 1000,
  nonfinite: NonfiniteConfig | None = None,
  devices: parallel.Devices = None,
) -> TrainState:
  """Trains to `num_steps` updates, from the newest good checkpoint if any.

  Every process of the job calls it with the same arguments. All intervals are
  in updates, and due at the first call that ends on or beyond a multiple; all
  are due at the end. A line of the log holds the means over the one call that
  ends at its step, so that it does not depend on where the run was stopped.

  Args:
    workdir: gets `checkpoints/`, `metrics.jsonl` and TensorBoard events; shared
      by the processes.
    init: makes the state of step 0; must be traceable, and is only traced where
      there is a checkpoint.
    update: (state, batch) -> (state, metrics), of `update.make_update`. The
      state is donated.
    num_steps: updates in the whole run, earlier starts included.
    updates_per_call: by how much `update` advances `state.step`.
    batch_at: step -> this process's examples of that update, leaves [B, ...] on
      the host; a function of the step and nothing else. None where `update`
      makes its own data.
    evaluate: state -> metrics, of `evaluate.make_evaluate`.
    log_every: updates between lines of the log.
    eval_every: updates between evaluations.
    checkpoint_every: updates between checkpoints.
    keep_checkpoints: how many of the newest to keep.
    check_replicas_every: updates between checks that all devices still hold the
      same state; it is checked before each checkpoint too.
    nonfinite: what is done about updates that are not finite; None: stop.
    devices: as in `parallel`.

  Returns:
    The trained state, on the devices.

  Raises:
    Preempted: a signal asked to stop; the state is saved.
    Diverged: `nonfinite` says to end the run. The metrics are saved; where the
      first bad update ends it the state is too, unless the whole call was bad.
    RuntimeError: the devices no longer hold the same state.
    ConfigurationError: numbers that do not go together, or a workdir of another
      run or in which another process is training.
    SaveFailed: a checkpoint could not be written.
  """
  _check_intervals(
    log_every=log_every,
    eval_every=eval_every,
    checkpoint_every=checkpoint_every,
    check_replicas_every=check_replicas_every,
    num_steps=num_steps,
    updates_per_call=updates_per_call,
  )
  started = goodput.start_of_work()
  nonfinite = NonfiniteConfig() if nonfinite is None else nonfinite
  streak = Streak(nonfinite, updates_per_call)
  workdir = pathlib.Path(workdir)
  held = lock.hold(workdir) if distributed.is_primary() else nullcontext()
  with (
    held,
    Preemption() as preemption,
    Checkpointer(workdir / CHECKPOINTS, keep=keep_checkpoints) as saver,
  ):
    restored = saver.restore(jax.eval_shape(init))
    step, state = (0, init()) if restored is None else restored
    state = parallel.place_state(state, devices)
    if step >= num_steps:
      if distributed.is_primary():
        say(f'{workdir} is done: {step} updates of {num_steps} are made.')
      return state
    if (num_steps - step) % updates_per_call:
      raise ConfigurationError(
        f'{num_steps} updates cannot be reached from step {step} by calls of '
        f'{updates_per_call}; choose a num_steps that is {step} plus a '
        f'multiple of {updates_per_call}.'
      )

    def due(every):
      return step // every > before // every or step == num_steps

    in_flight, means = deque(), {}
    saved, rolled_back_to = step, None
    with _Report(workdir, step, num_steps, started) as report:
      report.spend('compile')
      while step < num_steps:
        batch = None
        if batch_at is not None:
          with report.spending('data'):
            batch = parallel.split_batch(_batch(batch_at, step), devices)
        state, metrics = update(state, batch)
        before, step = step, step + updates_per_call
        in_flight.append((step, metrics))

        stop = preemption.requested()
        save = stop or due(checkpoint_every)
        check = save or due(check_replicas_every)
        settle = check or due(log_every) or due(eval_every)
        bad = {}
        while len(in_flight) > (0 if settle or bad else _calls_ahead()):
          at, metrics = in_flight.popleft()
          means = metrics_lib.divide(metrics)
          streak.count(means)
          if means['nonfinite'] > 0:
            bad[at] = means
        report.spend('step')
        watchdog.beat()
        if bad and nonfinite.action == 'stop':
          for at, bad_means in bad.items():
            report.record(at, bad_means, None)
          if step not in bad and due(log_every):
            report.record(step, means, None)
          report.sync(step)
          # A state that got nowhere would only push out a good checkpoint.
          progress = any(each['nonfinite'] < 1 for each in bad.values())
          if progress:
            if jax.device_count() > 1:
              parallel.assert_replicated(state, devices)
            saver.save(step, state)
          saver.wait()
          raise Diverged(
            _describe_bad(bad, updates_per_call, progress, workdir)
          )
        if bad:
          report.warn(_count_bad(bad, updates_per_call))
        if check and jax.device_count() > 1:
          with report.spending('other'):
            parallel.assert_replicated(state, devices)
        evaluation = None
        if evaluate is not None and due(eval_every):
          with report.spending('evaluation'):
            evaluation = metrics_lib.divide(evaluate(state))
          watchdog.beat()
        with report.spending('other'):
          report.record(step, means if due(log_every) else None, evaluation)
        # Inside a streak nothing is saved, so that a start from before it comes
        # to the same end; but for the end of the run, where it is not broken.
        ends_well = step == num_steps and not streak.broken
        save = save and (streak.length == 0 or ends_well)
        if save:
          with report.spending('checkpoint'):
            # First, so that no checkpoint is ahead of the log.
            report.sync(step)
            saver.save(step, state)
          saved = step
          report.saved(step)
          watchdog.beat()
        saver.poll()
        if stop and step < num_steps:
          with report.spending('checkpoint'):
            saver.wait()
          report.finish(step, saved)
          raise Preempted(
            f'Stopped at step {step} of {num_steps}; everything up to step '
            f'{saved} is saved in {workdir}. The same command goes on from '
            'there.'
          )
        if nonfinite.action != 'stop' and streak.broken:
          report.sync(step)
          saver.wait()
          streak.give_up_or_go_on(
            step, saved, rolled_back_to, last=step == num_steps
          )
          rolled_back_to = saved
          restored_step, state = _roll_back(saver, init, step, devices)
          report.warn(
            f'No update was finite for {nonfinite.patience} calls up to step '
            f'{step}: going on with the weights of step {restored_step}.'
          )
      report.spend('checkpoint')
      saver.wait()
      report.finish(step, saved)
      return state


class _Report:
  """Log, ledger and progress of the primary process; silent in the others."""

  def __init__(
    self, workdir: pathlib.Path, step: int, num_steps: int, started: float
  ):
    self._sinks = None
    self._workdir, self._step = workdir, step
    if distributed.is_primary():
      self._log = MetricsLog(workdir, step)
      self._progress = Progress(step, num_steps)
      self._ledger = goodput.Ledger(workdir, step, started=started)
      self._sinks = self._log, self._progress
      if step:
        say(f'{workdir}: going on from step {step} of {num_steps}.')

  def __enter__(self) -> '_Report':
    return self

  def __exit__(self, *exception) -> None:
    if self._sinks is None:
      return
    # Where the disk is full, that is what the caller has to hear of.
    with suppress(OSError):
      self._ledger.write(self._step)
    for sink in self._sinks:
      sink.close()

  def record(
    self,
    step: int,
    train: dict[str, float] | None,
    evaluation: dict[str, float] | None,
  ) -> None:
    """Tells of every call; a line is written where there is something in it."""
    if self._sinks is None:
      return
    self._step = step
    if train is not None or evaluation is not None:
      self._log.write(step, train, evaluation)
      self._ledger.write(step, pause=_LEDGER_SECONDS)
    self._progress.update(step, train, evaluation)

  def warn(self, line: str) -> None:
    """Prints what somebody should know of."""
    if self._sinks is not None:
      say(line)

  def spend(self, kind: str) -> None:
    """From here on time is spent on `kind`; see `goodput.KINDS`."""
    if self._sinks is not None:
      self._ledger.enter(kind)

  @contextmanager
  def spending(self, kind: str) -> Iterator[None]:
    """Within it time is spent on `kind`, and then as before."""
    if self._sinks is None:
      yield
      return
    before = self._ledger.enter(kind)
    try:
      yield
    finally:
      self._ledger.enter(before)

  def saved(self, step: int) -> None:
    """Tells that a checkpoint of `step` is on its way."""
    if self._sinks is not None:
      self._ledger.saved(step)

  def sync(self, step: int) -> None:
    """Puts the log and the ledger on the disk."""
    if self._sinks is not None:
      self._log.sync()
      self._ledger.write(step)

  def finish(self, step: int, saved: int) -> None:
    """As `sync`, and says what the wall time of all starts went into."""
    self.sync(step)
    if saved == step:
      self.saved(step)  # Again, with the wait for it.
    if self._sinks is not None:
      self._ledger.write(step)
      self._progress.close()  # Else it would be drawn over the sentence.
      starts = goodput.read_ledger(self._workdir)
      say(goodput.describe(goodput.summarize(starts)))


def _batch(batch_at: Callable[[int], ArrayTree], step: int) -> ArrayTree:
  try:
    return batch_at(step)
  except Exception as error:
    error.add_note(f'This was the batch of step {step}.')
    raise


def _roll_back(
  saver: Checkpointer,
  init: Callable[[], TrainState],
  step: int,
  devices: parallel.Devices,
) -> tuple[int, TrainState]:
  """The newest good state and its step, which in it is that of now.

  So the data go on from here.
  """
  restored = saver.restore(jax.eval_shape(init))
  restored_step, state = (0, init()) if restored is None else restored
  return restored_step, parallel.place_state(
    state._replace(step=np.asarray(step, np.int32)), devices
  )


def _calls_ahead() -> int:
  """How many calls may be under way while the loop goes on.

  One, so that the device does not wait for the host to read metrics. None on
  the CPU: there is nothing to gain, and collectives of calls that overlap can
  lock up several processes.
  """
  return 0 if jax.default_backend() == 'cpu' else 1


def _count_bad(bad: dict[int, dict[str, float]], updates: int) -> str:
  count = sum(round(means['nonfinite'] * updates) for means in bad.values())
  return (
    f'Step {max(bad)}: {count} of the last {len(bad) * updates} updates were '
    'not finite and were left out.'
  )


def _describe_bad(
  bad: dict[int, dict[str, float]],
  updates: int,
  saved: bool,
  workdir: pathlib.Path,
) -> str:
  step, means = next(iter(bad.items()))
  kept = (
    f'State and metrics are kept in {workdir}; starting again goes on '
    'without those updates.'
    if saved
    else f'Metrics and the checkpoints from before are kept in {workdir}; '
    'starting again as it is would only come here again.'
  )
  return (
    f'{round(means["nonfinite"] * updates)} of the {updates} updates up to '
    f'step {step} had a loss, gradient or change that is not finite and were '
    f'left out. {kept} Look at the learning rate and the clipping first.'
  )


def _check_intervals(**numbers: int) -> None:
  for name, number in numbers.items():
    if number < 1:
      raise ConfigurationError(f'{name} must be at least 1, got {number}.')
