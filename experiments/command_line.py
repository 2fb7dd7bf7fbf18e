"""The command line that all experiments share: flags, presets, exit codes.

  python -m experiments.nth_farthest.train --preset=quick --workdir=runs/mine \
      --config.core.mem_slots=8 --print_config

The preset comes first and the --config.x overrides on top of it, wherever they
stand. The same command resumes a run that was stopped.
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
from rmc_jax.errors import ConfigurationError
from rmc_jax.errors import Diverged
from rmc_jax.errors import DONE
from rmc_jax.errors import Preempted
from rmc_jax.training import cluster
from rmc_jax.training import distributed
from rmc_jax.training import watchdog

# More would cut a batch into shares too small to be worth their exchange.
_MOST_CPU_DEVICES = 8
# What a container may use: microseconds of CPU time, or max, in a period.
_CPU_QUOTA = pathlib.Path('/sys/fs/cgroup/cpu.max')
_SECONDS_AHEAD_OF_PRIMARY = 5

FLAGS = flags.FLAGS
# --help shows the flags as those of the experiment, not of this module.
flags.disclaim_key_flags()


def main(
  train: Callable[[Any, pathlib.Path], Any],
  config_class: type,
  presets: Mapping[str, Mapping[str, Any]],
  *,
  experiment: str,
  preset: str,
  argv: Sequence[str] | None = None,
) -> NoReturn:
  """Reads the command line, trains, and ends the process with an exit code.

  Args:
    train: (config, workdir) -> anything. Called once the configuration is
      checked and saved in the workdir, and all processes have joined.
    config_class: a dataclass, perhaps of dataclasses, with a default for every
      field. A `validate()` of any of them is called with the final values and
      raises ValueError, with a sentence, for what makes no sense.
    presets: name -> the fields in which it differs, as a nested dict.
    experiment: the name, for the default workdir and config.json.
    preset: the preset without --preset.
    argv: the command line, None for that of the process.

  Exit codes: 0 done, 75 preempted, 76 diverged, 77 wrong configuration, with
  one sentence on standard error. Any other error is a crash with its traceback.
  """
  argv = list(sys.argv if argv is None else argv)
  try:
    chosen = _define_flags(config_class, presets, preset, argv)
    app.run(
      lambda _: _run(train, experiment, chosen),
      argv=argv,
      flags_parser=_parse_flags,
    )
  except (Preempted, Diverged, ConfigurationError) as stopped:
    print(f'{experiment}: {stopped}', file=sys.stderr, flush=True)
    if isinstance(stopped, ConfigurationError):
      # It may be wrong for this process alone, and the others still at work.
      _leave_if_in_job(stopped.exit_code)
    distributed.shutdown()
    sys.exit(stopped.exit_code)
  raise AssertionError('app.run does not return')


def _define_flags(
  config_class: type,
  presets: Mapping[str, Mapping[str, Any]],
  default: str,
  argv: list[str],
) -> str:
  """Defines the flags; those of --config start from the preset in `argv`."""
  # The flags of --config override an object that must exist when they are
  # defined, so the preset and the core, which determine it, are read first.
  argv = FLAGS.read_flags_from_files(argv, force_gnu=True)
  ahead = flags.FlagValues()
  ahead.set_gnu_getopt(True)
  help_string = f'Where to start from: {", ".join(presets)}.'
  flags.DEFINE_string('preset', default, help_string, flag_values=ahead)
  flags.DEFINE_string('config.core.name', None, '', flag_values=ahead)
  ahead(argv, known_only=True)
  config = configuration.with_preset(
    config_class, presets, ahead.preset, ahead['config.core.name'].value
  )
  found = [re.match(r'--?(?:no)?config\.([^=]+)', each) for each in argv[1:]]
  configuration.check_names(config, [match[1] for match in found if match])

  flags.DEFINE_string('preset', default, help_string)
  config_flags.DEFINE_config_dataclass(
    'config',
    config,
    sys_argv=argv,
    help_string='--config.a.b=c sets one field; --print_config shows all.',
  )
  flags.DEFINE_bool(
    'print_config', False, 'Print the configuration as JSON, and end.'
  )
  flags.DEFINE_string(
    'workdir',
    None,
    'Folder of the run: metrics, checkpoints, figures. A run found there is '
    'resumed. Default: runs/EXPERIMENT-PRESET.',
  )
  flags.DEFINE_string(
    'coordinator_address',
    None,
    'host:port of process 0, in a job of several processes.',
  )
  flags.DEFINE_integer(
    'num_processes', None, 'Processes in the job.', lower_bound=1
  )
  flags.DEFINE_integer(
    'process_id', None, 'Which of them this is, from 0.', lower_bound=0
  )
  flags.DEFINE_enum(
    'cluster',
    'auto',
    ['auto', 'none'],
    'auto: join the job of Slurm, Open MPI, a Cloud TPU or Kubernetes that '
    'this process was started in. none: only what the three flags say.',
  )
  flags.DEFINE_float(
    'watchdog_seconds',
    1800.0,
    'End the process, with all its stacks in the log, if for so long no call '
    'of the update, evaluation or checkpoint comes to its end; 0: never.',
    lower_bound=0.0,
  )
  flags.DEFINE_integer(
    'cpu_devices',
    None,
    'Devices that the CPU counts as, where it is what trains. Default: one '
    'a core, rounded down to a power of two, 8 at most; one in a job of '
    'several processes.',
    lower_bound=1,
  )
  return ahead.preset


def _parse_flags(argv: Sequence[str]) -> list[str]:
  """Parses all flags; what absl refuses is a wrong configuration."""
  try:
    rest = FLAGS(argv)
  except flags.Error as error:
    raise ConfigurationError(_explain(str(error))) from error
  if rest[1:]:
    raise ConfigurationError(
      f'Every argument is a flag, as in --workdir=x; got {rest[1]!r}.'
    )
  return rest


def _explain(message: str) -> str:
  """A sentence for a value of the wrong type; other messages are sentences."""
  found = re.match(r'flag --config\.([\w.]+)=(.*?): ', message, re.DOTALL)
  if not found:
    return message
  path, value = found.groups()
  config = FLAGS['config'].default
  # None is for presets: no text on the command line means it.
  kind = configuration.type_name(config, path).removesuffix(' | None')
  example = configuration.fields(config)[path]
  such_as = '' if example is None else f', such as {example}'
  return f'--config.{path} takes {kind}{such_as}; got {value!r}.'


def _run(
  train: Callable[[Any, pathlib.Path], Any], experiment: str, preset: str
) -> int:
  """What the flags ask for; returns the exit code."""
  config = FLAGS.config
  configuration.validate(config)
  text = configuration.to_json(experiment, preset, config)
  if FLAGS.print_config:
    print(text, end='')
    return DONE
  if not FLAGS['verbosity'].present:
    logging.set_verbosity(logging.WARNING)  # Orbax tells much at INFO.
  workdir = pathlib.Path(FLAGS.workdir or f'runs/{experiment}-{preset}')
  configuration.check_workdir(workdir, text)
  _set_up_devices()
  try:
    distributed.check_same('configuration', text)
    if distributed.is_primary():
      configuration.save(workdir, text)
    with watchdog.watch(FLAGS.watchdog_seconds or None):
      train(config, workdir)
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
  """Ends a process of several at once: an orderly end waits for the others."""
  if jax.distributed.is_initialized() and jax.process_count() > 1:
    sys.stdout.flush()
    sys.stderr.flush()
    if distributed.is_primary():
      # The job ends with it, and JAX aborts whoever is still there. If all have
      # come here, each should end with this code.
      time.sleep(_SECONDS_AHEAD_OF_PRIMARY)
    os._exit(exit_code)


def _set_up_devices() -> None:
  """Joins the job and divides the CPU; before anything touches a device."""
  job = {
    name: FLAGS[name].value
    for name in ('coordinator_address', 'num_processes', 'process_id')
  }
  detect = FLAGS.cluster == 'auto'
  missing = [f'--{name}' for name, value in job.items() if value is None]
  detected = cluster.find(os.environ) if detect and missing else None
  if 0 < len(missing) < len(job) and detected is None:
    raise ConfigurationError(
      f'A job of several processes needs {", ".join(missing)} too.'
    )
  environment = os.environ.get('XLA_FLAGS', '')
  if FLAGS.cpu_devices is not None:
    jax.config.update('jax_num_cpu_devices', FLAGS.cpu_devices)
  elif (
    'JAX_NUM_CPU_DEVICES' not in os.environ
    and 'xla_force_host_platform_device_count' not in environment
  ):
    jax.config.update(
      'jax_num_cpu_devices',
      default_cpu_devices() if missing and detected is None else 1,
    )
  distributed.initialize(
    job['coordinator_address'],
    job['num_processes'],
    job['process_id'],
    detect=detect,
  )


def default_cpu_devices() -> int:
  """The devices that the CPU counts as in a job of one process."""
  return 2 ** (min(_cores(), _MOST_CPU_DEVICES).bit_length() - 1)


def _cores() -> int:
  """Cores that this process may use, as many as its mask and quota allow."""
  if hasattr(os, 'sched_getaffinity'):  # Not on macOS.
    cores = len(os.sched_getaffinity(0))
  else:
    cores = os.cpu_count() or 1
  if _CPU_QUOTA.exists():
    quota, period = _CPU_QUOTA.read_text().split()
    if quota != 'max':
      cores = min(cores, max(1, int(quota) // int(period)))
  return cores
