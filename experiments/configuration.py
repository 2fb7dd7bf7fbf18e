"""Configurations: applying presets, checking values, comparing runs.

A configuration is a plain dataclass of numbers, strings, tuples and nested
dataclasses. A preset, listed in an experiment's `sweep.py`, is a nested dict of
the fields that differ from the defaults.
"""

from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import difflib
import json
import pathlib
import types
import typing
from typing import Any

from rmc_jax import files
from rmc_jax import training
from rmc_jax.analysis.runs import CONFIG
from rmc_jax.analysis.runs import read_config
from rmc_jax.cores import build
from rmc_jax.cores.config import CoreConfig
from rmc_jax.errors import ConfigurationError


def with_preset(
  config_class: type,
  presets: Mapping[str, Mapping[str, Any]],
  preset: str,
  core: str | None = None,
) -> Any:
  """Returns the configuration of a preset.

  Args:
    config_class: a dataclass with a default for every field.
    presets: name -> the fields that differ from the defaults, a nested dict.
    preset: a name in `presets`.
    core: the name of a core, whose defaults replace the preset's core unless it
      is the same; None to keep the preset's core.

  Raises:
    ConfigurationError: no such preset or core, a field that does not exist, or
      a value of the wrong type.
  """
  if preset not in presets:
    raise ConfigurationError(
      f'There is no preset {preset!r}.{did_you_mean(preset, presets)} '
      f'Presets: {", ".join(presets)}.'
    )
  config = config_class()
  _override(config, presets[preset], f'Preset {preset!r}', '')
  if core and isinstance(getattr(config, 'core', None), CoreConfig):
    config.core = _core_config(core, config.core)
  return config


def fields(config: Any) -> dict[str, Any]:
  """Returns dotted path -> value, such as core.mem_slots, for all fields."""
  return _flat(dataclasses.asdict(config))


def validate(config: Any) -> None:
  """Checks all types, and calls the `validate` methods of the dataclasses.

  Raises:
    ConfigurationError: a field, or an element of one, has the wrong type, or a
      `validate` method raised a ValueError.
  """
  hints = typing.get_type_hints(type(config))
  for field in dataclasses.fields(config):
    if dataclasses.is_dataclass(value := getattr(config, field.name)):
      validate(value)
    elif not _fits(value, hints[field.name]):
      raise ConfigurationError(
        f'{field.name} must be {type_name(config, field.name)}. Got: {value!r}.'
      )
  try:
    if isinstance(config, CoreConfig):
      build.validate(config)
    elif hasattr(config, 'validate'):
      config.validate()
  except ConfigurationError:
    raise
  except ValueError as error:
    raise ConfigurationError(str(error)) from error


def to_json(experiment: str, preset: str, config: Any) -> str:
  """Returns the text of `config.json`, which `--print_config` prints."""
  content = {
    'experiment': experiment,
    'preset': preset,
    'config': dataclasses.asdict(config),
  }
  return json.dumps(content, indent=2) + '\n'


def save(workdir: pathlib.Path, text: str) -> None:
  """Writes config.json atomically."""
  files.atomic_write(workdir / CONFIG, text.encode())


def check_workdir(workdir: pathlib.Path, text: str, config: Any) -> None:
  """Raises if a folder holds checkpoints of another configuration.

  Fields declared with `training.may_change_on_resume` may differ. Any
  configuration may use a folder without checkpoints, or a new one.

  Args:
    workdir: the folder.
    text: `config` as text, from `to_json`.
    config: the new configuration.

  Raises:
    ConfigurationError: the configuration differs or cannot be read.
  """
  if not any(workdir.glob('checkpoints/*')):
    return
  wanted = json.loads(text)
  found = read_config(workdir, wanted['experiment'])
  before, now = _flat(found['config']), _flat(wanted['config'])
  missing = sorted(now.keys() - before.keys())
  # Another core has other fields.
  if missing and before.get('core.name') == now.get('core.name'):
    raise ConfigurationError(
      f'{workdir} holds a run of an earlier version of rmc_jax, whose {CONFIG} '
      f'has no {missing[0]}. Finish it with that version, or choose another '
      '--workdir.'
    )
  changeable = _changeable(config)
  lines = [
    f'  config.{name}: {before.get(name, "absent")} there, '
    f'{now.get(name, "absent")} now'
    for name in sorted(before.keys() | now.keys())
    if before.get(name, ...) != now.get(name, ...)
    and not any(f'{name}.'.startswith(f'{each}.') for each in changeable)
  ]
  if lines:
    raise ConfigurationError(
      f'{workdir} holds a run of another configuration (preset '
      f'{found["preset"]}). Resume it with the same one, or choose '
      'another --workdir:\n' + '\n'.join(lines)
    )


def did_you_mean(name: str, names: Iterable[str]) -> str:
  """Returns ' Did you mean x?', or '' if no name is similar."""
  close = difflib.get_close_matches(name, list(names), n=1)
  return f' Did you mean {close[0]}?' if close else ''


def check_names(config: Any, paths: Iterable[str]) -> None:
  """Raises ConfigurationError if a dotted path is no field of `config`."""
  known = fields(config)
  for path in paths:
    if path not in known:
      holder = getattr(config, path.rpartition('.')[0], config)
      raise ConfigurationError(
        f'There is no field config.{path}{_remedy(holder, path, known)} '
        '--print_config shows all fields.'
      )


def type_name(config: Any, path: str) -> str:
  """Returns the declared type of a field, as source code."""
  *parents, name = path.split('.')
  for parent in parents:
    config = getattr(config, parent)
  hint = typing.get_type_hints(type(config))[name]
  return hint.__name__ if isinstance(hint, type) else str(hint)


def _override(
  config: Any, values: Mapping[str, Any], who: str, prefix: str
) -> None:
  """Sets fields of `config`, in place."""
  hints = typing.get_type_hints(type(config))
  for name, value in values.items():
    path = prefix + name
    if name not in hints:
      raise ConfigurationError(
        f'{who} sets {path}, which does not exist'
        f'{_remedy(config, path, [prefix + hint for hint in hints])}'
      )
    current = getattr(config, name)
    if isinstance(current, CoreConfig) and isinstance(value, Mapping):
      current = _core_config(value.get('name', current.name), current)
      setattr(config, name, current)
    if dataclasses.is_dataclass(current) and isinstance(value, Mapping):
      _override(current, value, who, path + '.')
    elif _fits(value, hints[name]):
      setattr(config, name, value)
    else:
      raise ConfigurationError(
        f'{who} sets {path} to {value!r}; it must be {type_name(config, name)}.'
      )


def _core_config(name: str, current: CoreConfig) -> CoreConfig:
  """Returns `current` if it is of that core, else that core's defaults."""
  if name == current.name:
    return current
  if name not in build.CORES:
    raise ConfigurationError(
      f'There is no core {name!r}.{did_you_mean(str(name), build.CORES)} '
      f'Cores: {", ".join(build.CORES)}.'
    )
  config_class, _ = build.CORES[name]
  return config_class(name)


def _remedy(config: Any, path: str, known: Iterable[str]) -> str:
  """Returns the end of a sentence about an unknown field.

  Suggests a field of `known` with a similar name, or the core that has `path`.
  """
  suggestion = did_you_mean(path, known)
  if not isinstance(config, CoreConfig):
    return f'.{suggestion}'
  name = path.rpartition('.')[2]
  owners = ', '.join(
    owner
    for owner, (config_class, _) in build.CORES.items()
    if name in build.argument_names(config_class)
  )
  reason = f': it belongs to {owners}.' if owners else f'.{suggestion}'
  _, *own = dataclasses.fields(config)  # without the name
  names = ', '.join(field.name for field in own)
  return f' for core {config.name}{reason} Fields of {config.name}: {names}.'


def _fits(value: Any, hint: Any) -> bool:
  """Returns whether a value has the declared type; ints count as floats."""
  origin = typing.get_origin(hint)
  if origin in (typing.Union, types.UnionType):
    return any(_fits(value, each) for each in typing.get_args(hint))
  if origin is tuple:
    kinds = typing.get_args(hint)
    if kinds[1:] == (...,):
      kinds = kinds[:1] * len(value) if isinstance(value, tuple) else ()
    return (
      isinstance(value, tuple)
      and len(value) == len(kinds)
      and all(map(_fits, value, kinds))
    )
  if origin is not None:
    return isinstance(value, origin)
  if hint in (int, float) and isinstance(value, bool):
    return False
  return isinstance(value, int | float if hint is float else hint)


def _changeable(config: Any, prefix: str = '') -> set[str]:
  """Returns the dotted paths declared with `may_change_on_resume`."""
  paths = set()
  for field in dataclasses.fields(config):
    if field.metadata.get(training.MAY_CHANGE_ON_RESUME):
      paths.add(prefix + field.name)
    elif dataclasses.is_dataclass(value := getattr(config, field.name)):
      paths |= _changeable(value, f'{prefix}{field.name}.')
  return paths


def _flat(tree: Mapping[str, Any], prefix: str = '') -> dict[str, Any]:
  flat = {}
  for name, value in tree.items():
    if isinstance(value, Mapping):
      flat |= _flat(value, f'{prefix}{name}.')
    else:
      flat[prefix + name] = value
  return flat
