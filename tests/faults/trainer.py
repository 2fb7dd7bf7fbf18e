"""Trains the toy by the real command line and does itself harm on the way.

  python -m tests.faults.trainer WORKDIR FAULT [FLAG...] [ADDRESS COUNT ID]

FAULT is `none` or NAME@STEP[,STEP...], one of FAULTS or SAVE_FAULTS, and comes
at these steps. ADDRESS COUNT ID make it one process of a job. Every process
writes the steps that it was asked for a batch of to WORKDIR/asked_ID.
"""

import dataclasses
import functools
import os
import resource
import signal
import sys
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax

from experiments import command_line
from rmc_jax.training import parallel
from rmc_jax.training.checkpoint import Checkpointer
from rmc_jax.training.loop import train as train_loop
from rmc_jax.training.nonfinite import NonfiniteConfig
from rmc_jax.training.state import create_state
from rmc_jax.training.update import LossAux
from rmc_jax.training.update import make_update
from tests.training import toy_regression as toy
from tests.training.replicas import with_flipped_bit


@dataclasses.dataclass
class Config:
  """One run."""

  num_steps: int = 30
  batch_size: int = toy.BATCH
  outputs: int = toy.OUTPUTS
  optimizer: str = 'adam'
  dropout: bool = True  # Depends on the number of devices.
  ballast: int = 0  # Numbers in the state that only make it large.
  checkpoint_every: int = 10
  keep_checkpoints: int = 3
  check_replicas_every: int = 1000
  nonfinite: NonfiniteConfig = dataclasses.field(
    default_factory=NonfiniteConfig
  )


def main(workdir, fault, *rest):
  """Ends the process with the exit code of the command line."""
  flags = [argument for argument in rest if argument.startswith('--')]
  if job := rest[len(flags) :]:
    flags += [
      f'--coordinator_address={job[0]}',
      f'--num_processes={job[1]}',
      f'--process_id={job[2]}',
    ]
  command_line.main(
    functools.partial(train, fault=fault),
    Config,
    {'quick': {}},
    experiment='toy',
    preset='quick',
    argv=['trainer', f'--workdir={workdir}', *flags],
  )


def train(config, workdir, fault='none'):
  """Trains on batches from the host; returns the state."""
  name, _, steps = fault.partition('@')
  steps = [int(step) for step in steps.split(',') if step]
  rows = parallel.process_rows(config.batch_size)
  if name in SAVE_FAULTS:
    _after_save(steps[0], SAVE_FAULTS[name])

  def batch_at(step):
    with (workdir / f'asked_{jax.process_index()}').open('a') as asked:
      asked.write(f'{step}\n')
    batch = {key: each[rows] for key, each in toy.batch_at(step).items()}
    # Which takes effect within about a second, in which it would be done.
    if name in ('sigterm', *SAVE_FAULTS) and step > steps[0]:
      time.sleep(0.5)
    if name in FAULTS and step in steps:
      return FAULTS[name](step, batch, workdir)
    return batch

  def update(state, batch):
    flips = name == 'flip' and int(state.step) in steps
    state, metrics = _update(
      config.optimizer, config.batch_size, config.dropout
    )(state, batch)
    if flips:
      linear = state.params['linear']
      w = with_flipped_bit(linear['w'], replica=0)
      state = state._replace(params={'linear': linear | {'w': w}})
    return state, metrics

  return train_loop(
    workdir,
    init=functools.partial(init, config),
    update=update,
    batch_at=batch_at,
    num_steps=config.num_steps,
    log_every=1,
    checkpoint_every=config.checkpoint_every,
    keep_checkpoints=config.keep_checkpoints,
    check_replicas_every=config.check_replicas_every,
    nonfinite=config.nonfinite,
  )


def init(config):
  """The state of step 0."""
  state = toy.init(config.outputs)
  # Numbers that no disk compresses.
  noise = jax.random.bits(jax.random.key(5), (config.ballast,))
  return create_state(
    state.params,
    state.network_state | {'ballast': noise},
    _optimizer(config.optimizer),
    state.key,
  )


def _optimizer(name):
  return {'adam': toy.optimizer(), 'sgd': optax.sgd(1e-2)}[name]


@functools.cache  # Compiled once, however many runs a test makes.
def _update(optimizer, batch_size, dropout):
  return make_update(
    functools.partial(_loss_fn, dropout=dropout),
    _optimizer(optimizer),
    global_batch_size=batch_size,
  )


def _loss_fn(params, network_state, key, batch, dropout):
  x = batch['x']
  if dropout:
    x = x * jax.random.bernoulli(key, 0.9, x.shape)
  predictions = x @ params['linear']['w'] + params['linear']['b'][None]
  error = ((predictions - batch['y']) ** 2).sum(-1)  # [B]
  return error.sum(), LossAux(
    weight=jnp.asarray(error.size, jnp.float32),
    metrics={},
    network_state=network_state | {'calls': network_state['calls'] + 1},
  )


def sigterm(step, batch, workdir):
  """Asked to stop, as before a preemption."""
  del step, workdir
  os.kill(os.getpid(), signal.SIGTERM)
  return batch


def die(step, batch, workdir):
  """Killed."""
  del step, batch
  _tell_when(workdir)
  _kill()


def sleep(step, batch, workdir):
  """Alive, heartbeats and all, but stuck."""
  del step
  _tell_when(workdir)
  time.sleep(3600)
  return batch


def stop(step, batch, workdir):
  """As if swapped out: not even the clock of its watchdog runs."""
  del step
  _tell_when(workdir)
  os.kill(os.getpid(), signal.SIGSTOP)
  return batch


def nan(step, batch, workdir):
  """A batch that is not finite."""
  del step, workdir
  return batch | {'y': batch['y'] * np.float32(np.nan)}


def unreadable(step, batch, workdir):
  """What a reader of files does where a record is damaged."""
  del batch, workdir
  raise ValueError(f'shard 3, record {step}: the checksum is wrong')


def small_disk(step, batch, workdir):
  """No file may grow beyond 100 kB: the log still fits, a checkpoint not."""
  del step, workdir
  _limit_files(100_000)
  return batch


def full_disk(step, batch, workdir):
  """Not a byte more."""
  del step, workdir
  _limit_files(0)
  return batch


FAULTS = {
  fault.__name__: fault
  for fault in (
    sigterm,
    die,
    sleep,
    stop,
    nan,
    unreadable,
    small_disk,
    full_disk,
  )
}
# Milliseconds from the call of the save to the kill.
SAVE_FAULTS = {f'die_{ms}_ms_into_save': ms for ms in (0, 20, 100, 300)}


def _tell_when(workdir):
  (workdir / 'harmed').write_text(str(time.monotonic()))


def _limit_files(size):
  hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
  resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))


def _kill():
  os.kill(os.getpid(), signal.SIGKILL)


def _after_save(step, milliseconds):
  """Kills this process so long after the save of `step` was called."""

  def save(checkpointer, at, state):
    if at == step:
      if milliseconds:
        threading.Timer(milliseconds / 1000, _kill).start()
      original(checkpointer, at, state)
      if not milliseconds:
        _kill()
    else:
      original(checkpointer, at, state)

  original, Checkpointer.save = Checkpointer.save, save


if __name__ == '__main__':
  main(*sys.argv[1:])
