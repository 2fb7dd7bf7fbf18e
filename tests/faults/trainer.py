"""Trains the toy model with the real command line and injects faults.

  python -m tests.faults.trainer WORKDIR FAULT [FLAG...] [ADDRESS COUNT ID]

FAULT is `none`, late@SECONDS, which starts later, or NAME@STEP[,STEP...], with
a name from FAULTS or SAVE_FAULTS.
ADDRESS COUNT ID make it one process of a job. Every process appends the steps
whose batches it loads to WORKDIR/steps_ID.
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
from rmc_jax import training
from rmc_jax.training import lease
from rmc_jax.training import parallel
from rmc_jax.training.checkpoint import Checkpointer
from rmc_jax.training.state import create_state
from rmc_jax.training.update import LossAux
from rmc_jax.training.update import make_update
from tests.training import toy_regression as toy
from tests.training.replicas import with_flipped_bit


@dataclasses.dataclass
class Config:
  """The configuration of a run."""

  batch_size: int = toy.BATCH
  outputs: int = toy.OUTPUTS
  optimizer: str = 'adam'
  dropout: bool = True  # Its noise depends on the number of devices.
  ballast: int = 0  # Unused numbers in the state, to make checkpoints large.
  run: training.RunConfig = dataclasses.field(
    default_factory=lambda: training.RunConfig(
      num_steps=30, log_every=1, checkpoint_every=10
    )
  )


def main(workdir, fault, *rest):
  """Trains and exits with the exit code of the command line."""
  # A killed process holds the lock of a bucket so long.
  lease.SECONDS = float(os.environ.get('LEASE_SECONDS', '6'))
  flags = [argument for argument in rest if argument.startswith('--')]
  if fault.startswith('late@'):
    time.sleep(float(fault.removeprefix('late@')))
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
    argv=['trainer', f'--workdir={workdir}', *flags],
  )


def make_config(num_steps=30, **fields):
  """Returns the default configuration with some fields replaced."""
  config = Config(**fields)
  config.run.num_steps = num_steps
  return config


def run(config, workdir, fault='none'):
  """Trains in this process, without a command line; returns the state."""
  with training.Runner(workdir) as runner:
    return train(config, runner, fault)


def train(config, runner, fault='none'):
  """Trains on batches from the host; returns the state."""
  workdir = runner.workdir
  name, _, steps = fault.partition('@')
  steps = [int(step) for step in steps.split(',') if step]
  rows = parallel.process_rows(config.batch_size)
  if name in SAVE_FAULTS:
    _after_save(steps[0], SAVE_FAULTS[name])

  def batch_at(step):
    with (workdir / f'steps_{jax.process_index()}').open('a') as steps_file:
      steps_file.write(f'{step}\n')
    batch = {key: each[rows] for key, each in toy.batch_at(step).items()}
    # The fault takes about a second, in which the run would finish.
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

  return runner.train(
    training.Experiment(
      init=functools.partial(init, config),
      update=update,
      source=training.FunctionSource(batch_at),
    ),
    config.run,
  )


def init(config):
  """Returns the state of step 0."""
  state = toy.init(config.outputs)
  # Noise, which file systems do not compress.
  noise = jax.random.bits(jax.random.key(5), (config.ballast,))
  return create_state(
    state.params,
    state.network_state | {'ballast': noise},
    _optimizer(config.optimizer),
    state.key,
  )


def _optimizer(name):
  return {'adam': toy.optimizer(), 'sgd': optax.sgd(1e-2)}[name]


@functools.cache  # Compiled once for all runs.
def _update(optimizer, batch_size, dropout):
  return make_update(
    functools.partial(_loss_fn, dropout=dropout),
    _optimizer(optimizer),
    global_batch_size=batch_size,
  )


def _loss_fn(params, network_state, carry, key, batch, dropout):
  x = batch['x']
  if dropout:
    x = x * jax.random.bernoulli(key, 0.9, x.shape)
  predictions = x @ params['linear']['w'] + params['linear']['b'][None]
  error = ((predictions - batch['y']) ** 2).sum(-1)  # [B]
  return error.sum(), LossAux(
    weight=jnp.asarray(error.size, jnp.float32),
    metrics={},
    network_state=network_state | {'calls': network_state['calls'] + 1},
    carry=carry,
  )


def sigterm(step, batch, workdir):
  """Sends SIGTERM, as a preemption does."""
  del step, workdir
  os.kill(os.getpid(), signal.SIGTERM)
  return batch


def die(step, batch, workdir):
  """Kills the process."""
  del step, batch
  _write_fault_time(workdir)
  _kill()


def sleep(step, batch, workdir):
  """Blocks, while the heartbeats of JAX continue."""
  del step
  _write_fault_time(workdir)
  time.sleep(3600)
  return batch


def stop(step, batch, workdir):
  """Stops the process and its watchdog."""
  del step
  _write_fault_time(workdir)
  os.kill(os.getpid(), signal.SIGSTOP)
  return batch


def nan(step, batch, workdir):
  """Returns a batch that is not finite."""
  del step, workdir
  return batch | {'y': batch['y'] * np.float32(np.nan)}


def unreadable(step, batch, workdir):
  """Raises the error of a damaged record."""
  del batch, workdir
  raise ValueError(f'shard 3, record {step}: the checksum is wrong')


def small_disk(step, batch, workdir):
  """Limits files to 100 kB, which fits the log but not a checkpoint."""
  del step, workdir
  _limit_files(100_000)
  return batch


def full_disk(step, batch, workdir):
  """Makes every write fail."""
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
# Milliseconds between the call of the save and the kill.
SAVE_FAULTS = {f'die_{ms}_ms_into_save': ms for ms in (0, 20, 100, 300)}


def _write_fault_time(workdir):
  (workdir / 'fault_time').write_text(str(time.monotonic()))


def _limit_files(size):
  hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
  resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))


def _kill():
  os.kill(os.getpid(), signal.SIGKILL)


def _after_save(step, milliseconds):
  """Kills this process some time after the save of `step` is called."""

  def save(checkpointer, at, *contents):
    if at == step:
      if milliseconds:
        threading.Timer(milliseconds / 1000, _kill).start()
      original(checkpointer, at, *contents)
      if not milliseconds:
        _kill()
    else:
      original(checkpointer, at, *contents)

  original, Checkpointer.save = Checkpointer.save, save


if __name__ == '__main__':
  main(*sys.argv[1:])
