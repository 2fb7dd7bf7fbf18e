"""The training loop: restore, update, log, evaluate, save, stop.

A run that was stopped resumes bit for bit: always on the CPU, and on a GPU with
XLA_FLAGS=--xla_gpu_deterministic_ops=true.
"""

from contextlib import nullcontext
import dataclasses

import jax

from rmc_jax import metrics as metrics_lib
from rmc_jax.training import parallel
from rmc_jax.training.checkpoint import Checkpointer
from rmc_jax.training.interval import Interval
from rmc_jax.training.nonfinite import NonfiniteStreak
from rmc_jax.training.preemption import Preemption
from rmc_jax.training.report import NullReport
from rmc_jax.training.run import Experiment
from rmc_jax.training.run import load_batch
from rmc_jax.training.run import RunConfig
from rmc_jax.training.state import check_step
from rmc_jax.training.state import skip_updates
from rmc_jax.training.state import TrainState
from rmc_jax.training.watchdog import Watchdog


@dataclasses.dataclass
class Loop:
  """One start of a run; `Runner.train` documents the contract."""

  workdir: str  # for messages
  experiment: Experiment
  run: RunConfig
  saver: Checkpointer
  preemption: Preemption
  watchdog: Watchdog
  devices: parallel.Devices

  def __post_init__(self):
    self.streak = NonfiniteStreak(self.run.nonfinite, self.run.updates_per_call)
    self.step, self.state, self.interval = self._restore()
    self.before = self.saved = self.step

  def train(self, report: NullReport) -> TrainState:
    """Updates to the last step, or until preempted."""
    self.report, source = report, self.experiment.source
    with report, source or nullcontext():
      if source is not None:
        source.set_params(self.state.params)
      report.enter('compile')
      while self.step < self.run.num_steps:
        self._update()
        stop = self.preemption.requested()
        save = stop or self._due(self.run.checkpoint_every)
        self._check(save)
        self._log_and_evaluate()
        if save and self.streak.allows_save(self.step == self.run.num_steps):
          self._save()
        self.saver.poll()
        if stop and self.step < self.run.num_steps:
          break
        if self.streak.exhausted:
          self._roll_back()
      with report.timed('checkpoint'):
        self.saver.wait()
      report.finish(self.step, self.saved)
    return self.state

  def _restore(self, skip_to: int = 0) -> tuple[int, TrainState, Interval]:
    """Reads the newest good checkpoint; no data before `skip_to` come next."""
    # Compiled: run op by op, it takes seconds and hundreds of megabytes.
    init = jax.jit(self.experiment.init)
    restored = self.saver.restore(jax.eval_shape(init))
    step, state, extra = restored or (0, init(), None)
    state = skip_updates(state, max(0, skip_to - step))
    placed = parallel.place_state(state, self.devices)
    return step, placed, Interval(extra)

  def _due(self, every: int) -> bool:
    crossed = self.step // every > self.before // every
    return crossed or self.step == self.run.num_steps

  def _update(self) -> None:
    source = self.experiment.source
    with self.report.timed('data') if source is not None else nullcontext():
      batch = load_batch(source, self.step, self.devices)
    self.state, metrics = self.experiment.update(self.state, batch)
    self.before, self.step = self.step, self.step + self.run.updates_per_call
    self.interval.append(self.step, metrics)
    if source is not None:
      source.set_params(self.state.params)

  def _check(self, save: bool) -> None:
    """Checks that the updates are finite, and replicas where that is due."""
    replicas = save or self._due(self.run.check_replicas_every)
    log = self._due(self.run.log_every) or self._due(self.run.eval_every)
    self.streak.read(self.interval, wait=replicas or log)
    self.report.enter('step')
    self.watchdog.heartbeat()
    if self.streak.bad:
      if self.run.nonfinite.action == 'stop':
        self._diverge()
      self.report.print(self.streak.warning())
    if replicas:
      with self.report.timed('other'):
        parallel.assert_replicated(self.state, self.devices)
      check_step(self.state, self.step, self.run.updates_per_call)

  def _log_and_evaluate(self) -> None:
    train = self.interval.take() if self._due(self.run.log_every) else None
    evaluation = None
    if self.experiment.evaluate and self._due(self.run.eval_every):
      with self.report.timed('evaluation'):
        evaluation = metrics_lib.divide(self.experiment.evaluate(self.state))
      self.watchdog.heartbeat()
      if self.experiment.on_evaluation is not None:
        self.state = self.experiment.on_evaluation(self.state, evaluation)
    with self.report.timed('other'):
      self.report.record(self.step, train, evaluation)

  def _save(self) -> None:
    with self.report.saving(self.step):
      state = parallel.gather_carry(self.state)
      self.saver.save(self.step, state, self.interval.to_json())
    self.saved = self.step
    self.watchdog.heartbeat()

  def _diverge(self) -> None:
    self.report.record(self.step, self.interval.take(), None)
    self.report.sync(self.step)
    if self.streak.progress:  # Otherwise keep the older checkpoints instead.
      parallel.assert_replicated(self.state, self.devices)
      self.saver.save(self.step, parallel.gather_carry(self.state))
    self.saver.wait()
    raise self.streak.stopped(self.workdir)

  def _roll_back(self) -> None:
    """Continues from the newest checkpoint, with the data that come next."""
    self.report.sync(self.step)
    self.saver.wait()
    last = self.step == self.run.num_steps
    self.streak.roll_back(self.step, self.saved, last)
    saved, self.state, _ = self._restore(skip_to=self.step)
    if self.experiment.source is not None:
      self.experiment.source.set_params(self.state.params)
    self.report.print(
      f'Step {self.step}: continuing with the parameters of step {saved}.'
    )
