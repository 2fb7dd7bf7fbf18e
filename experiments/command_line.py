"""The command line of all experiments: flags, presets, exit codes.

  python -m experiments.nth_farthest.train --preset=quick --workdir=runs/mine \
      --config.core.mem_slots=8 --print_config

Overrides (--config.x) apply on top of the preset, in any order. The same
command resumes a run that was stopped.
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import os
import pathlib
import re
import sys
import time
import traceback
from typing import Any
from typing import NoReturn

from absl import app
from absl import flags
from absl import logging
import jax
from ml_collections import config_flags

from experiments import configuration
from rmc_jax import training
from rmc_jax.errors import ConfigurationError
from rmc_jax.errors import Diverged
from rmc_jax.errors import DONE
from rmc_jax.errors import Preempted
from rmc_jax.training import cluster
from rmc_jax.training import distributed
from rmc_jax.training import goodput

# With more devices, the all-reduce costs more than it saves.
_MOST_CPU_DEVICES = 8
# CPU quota of a container: microseconds of CPU time, or max, per period.
_CPU_QUOTA = pathlib.Path('/sys/fs/cgroup/cpu.max')
_SECONDS_BEFORE_PRIMARY = 5

FLAGS = flags.FLAGS
# Makes --help list the flags under the experiment, not under this module.
flags.disclaim_key_flags()


def main(
  train: Callable[[Any, training.Runner], Any],
  config_class: type,
  presets: Mapping[str, Mapping[str, Any]],
  experiment: str,
  argv: Sequence[str] | None = None,
) -> NoReturn:
  """Reads the command line, trains, and ends the process with an exit code.

  Args:
    train: (config, runner) -> anything. Called when all processes have joined,
      the workdir is locked, and the configuration is checked and saved there.
    config_class: see `configuration.with_preset` and `configuration.validate`.
    presets: see `configuration.with_preset`; one is 'quick', the default.
    experiment: its name, for the workdir and config.json.
    argv: the command line; None for `sys.argv`.

  Exit codes: 0 done, 75 preempted, 76 diverged, 77 configuration error, each
  but 0 with a sentence on standard error. Other errors crash with a traceback.
  """
  argv = list(sys.argv if argv is None else argv)
  try:
    chosen = _define_flags(config_class, presets, argv)
    app.run(
      lambda _: _run(train, experiment, chosen),
      argv=argv,
      flags_parser=_parse_flags,
    )
  except (Preempted, Diverged, ConfigurationError) as stopped:
    print(f'{experiment}: {stopped}', file=sys.stderr, flush=True)
    if isinstance(stopped, ConfigurationError):
      # Only this process may have the error, while the others continue.
      _leave_if_in_job(stopped.exit_code)
    distributed.shutdown()
    sys.exit(stopped.exit_code)
  raise AssertionError('app.run does not return')


def _define_flags(
  config_class: type, presets: Mapping[str, Mapping[str, Any]], argv: list[str]
) -> str:
  """Defines the flags; returns the preset that --config overrides."""
  # The flags of --config need the object that they override, so the preset and
  # the core, which determine it, are parsed first.
  argv = FLAGS.read_flags_from_files(argv, force_gnu=True)
  ahead = flags.FlagValues()
  ahead.set_gnu_getopt(True)
  help_string = f'Values to start from: {", ".join(presets)}.'
  flags.DEFINE_string('preset', 'quick', help_string, flag_values=ahead)
  flags.DEFINE_string('config.core.name', None, '', flag_values=ahead)
  ahead(argv, known_only=True)
  config = configuration.with_preset(
    config_class, presets, ahead.preset, ahead['config.core.name'].value
  )
  found = [re.match(r'--?(?:no)?config\.([^=]+)', each) for each in argv[1:]]
  configuration.check_names(config, [match[1] for match in found if match])

  flags.DEFINE_string('preset', 'quick', help_string)
  config_flags.DEFINE_config_dataclass(
    'config',
    config,
    sys_argv=argv,
    help_string='--config.a.b=c sets a field; --print_config shows all fields.',
  )
  flags.DEFINE_bool(
    'print_config', False, 'Print the configuration as JSON and exit.'
  )
  flags.DEFINE_string(
    'workdir',
    None,
    'Folder of the run: metrics, checkpoints, figures. A run in it is resumed. '
    'Default: runs/EXPERIMENT-PRESET.',
  )
  flags.DEFINE_string(
    'coordinator_address',
    None,
    'host:port of process 0, in a job of several processes.',
  )
  flags.DEFINE_integer(
    'num_processes', None, 'Number of processes in the job.', lower_bound=1
  )
  flags.DEFINE_integer(
    'process_id', None, 'Index of this process, from 0.', lower_bound=0
  )
  flags.DEFINE_integer(
    'initialization_timeout',
    300,
    'Seconds that the processes of a job wait for each other at the start.',
    lower_bound=1,
  )
  flags.DEFINE_enum(
    'cluster',
    'auto',
    ['auto', 'none'],
    'auto: join the Slurm, Open MPI, Cloud TPU or Kubernetes job that this '
    'process belongs to. none: use the three flags above only.',
  )
  flags.DEFINE_float(
    'watchdog_seconds',
    1800.0,
    'Kill the process and log all its stacks if no update, evaluation or '
    'checkpoint finishes within this time; 0: never.',
    lower_bound=0.0,
  )
  flags.DEFINE_integer(
    'cpu_devices',
    None,
    'Number of JAX devices on the CPU. Default: one per core, rounded down to '
    'a power of two, at most 8; one in a job of several processes.',
    lower_bound=1,
  )
  return ahead.preset


def _parse_flags(argv: Sequence[str]) -> list[str]:
  """Parses all flags; errors of absl become ConfigurationErrors."""
  try:
    rest = FLAGS(argv)
  except flags.Error as error:
    raise ConfigurationError(_explain(str(error))) from error
  if rest[1:]:
    raise ConfigurationError(
      f'All arguments must be flags, such as --workdir=x. Got: {rest[1]!r}.'
    )
  return rest


def _explain(message: str) -> str:
  """Rewrites absl's message about a value of the wrong type."""
  found = re.match(r'flag --config\.([\w.]+)=(.*?): ', message, re.DOTALL)
  if not found:
    return message
  path, value = found.groups()
  config = FLAGS['config'].default
  # The command line has no way to write None.
  kind = configuration.type_name(config, path).removesuffix(' | None')
  example = configuration.fields(config)[path]
  such_as = '' if example is None else f', such as {example}'
  return f'--config.{path} must be {kind}{such_as}. Got: {value!r}.'


def _run(
  train: Callable[[Any, training.Runner], Any], experiment: str, preset: str
) -> int:
  """Runs the experiment with the parsed flags; returns the exit code."""
  config = FLAGS.config
  configuration.validate(config)
  text = configuration.to_json(experiment, preset, config)
  if FLAGS.print_config:
    print(text, end='')
    return DONE
  if not FLAGS['verbosity'].present:
    logging.set_verbosity(logging.WARNING)  # Orbax logs a lot at INFO.
  _set_up_devices()
  workdir = FLAGS.workdir or f'runs/{experiment}-{preset}'
  try:
    distributed.check_same('configuration', text)
    # Locks the workdir before reading or writing it.
    with training.Runner(
      workdir,
      watchdog_seconds=FLAGS.watchdog_seconds,
      started=goodput.process_start_time(),
    ) as runner:
      distributed.from_primary(
        lambda: configuration.check_workdir(runner.workdir, text, config)
      )
      if runner.is_primary:
        configuration.save(runner.workdir, text)
      train(config, runner)
  except (Preempted, Diverged, ConfigurationError):
    raise
  except Exception:
    if jax.process_count() > 1:
      traceback.print_exc()
    _leave_if_in_job(1)
    raise
  distributed.shutdown()
  return DONE


def _leave_if_in_job(exit_code: int) -> None:
  """Ends a process of several immediately, without waiting for the others."""
  if jax.distributed.is_initialized() and jax.process_count() > 1:
    sys.stdout.flush()
    sys.stderr.flush()
    if distributed.is_primary():
      # JAX aborts the other processes when the primary one exits, so let those
      # that fail too exit with this code first.
      time.sleep(_SECONDS_BEFORE_PRIMARY)
    os._exit(exit_code)


def _set_up_devices() -> None:
  """Joins the job and sets the number of CPU devices, before any is used."""
  job = [
    FLAGS[name].value
    for name in ('coordinator_address', 'num_processes', 'process_id')
  ]
  detect = FLAGS.cluster == 'auto'
  in_job = any(value is not None for value in job) or (
    detect and cluster.find(os.environ) is not None
  )
  environment = os.environ.get('XLA_FLAGS', '')
  if FLAGS.cpu_devices is not None:
    jax.config.update('jax_num_cpu_devices', FLAGS.cpu_devices)
  elif (
    'JAX_NUM_CPU_DEVICES' not in os.environ
    and 'xla_force_host_platform_device_count' not in environment
  ):
    devices = 1 if in_job else default_cpu_devices()
    jax.config.update('jax_num_cpu_devices', devices)
  distributed.initialize(
    *job,
    detect=detect,
    initialization_timeout=FLAGS.initialization_timeout,
  )


def default_cpu_devices() -> int:
  """Returns the number of CPU devices in a job of one process."""
  return 2 ** (min(_cores(), _MOST_CPU_DEVICES).bit_length() - 1)


def _cores() -> int:
  """Returns the number of cores that affinity mask and quota allow."""
  if hasattr(os, 'sched_getaffinity'):  # Not on macOS.
    cores = len(os.sched_getaffinity(0))
  else:
    cores = os.cpu_count() or 1
  if _CPU_QUOTA.exists():
    quota, period = _CPU_QUOTA.read_text().split()
    if quota != 'max':
      cores = min(cores, max(1, int(quota) // int(period)))
  return cores
