"""Weights of the original Sonnet module as Haiku parameters, and back.

`from_sonnet` and `to_sonnet` translate between the TensorFlow variables of
`sonnet.RelationalMemory` and the parameters of `rmc_jax.RelationalMemory`. Only
names change, by `name_table`; numbers and shapes stay. A variable that is
missing, unknown or of the wrong shape is an error that names it.

On the command line, which reads and writes checkpoints with the environment of
launch/parity.sh:

  python -m rmc_jax.parity.convert to-haiku model.ckpt-100 params.npz
  python -m rmc_jax.parity.convert to-tensorflow params.npz model.ckpt
"""

import argparse
import collections
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
import re
import sys
from typing import Any
from typing import NamedTuple

import numpy as np

from rmc_jax.parity import checkpoint
from rmc_jax.parity import names

DEFAULT_NAME = 'relational_memory'

# Scalars that TensorFlow 1 optimisers and training loops save beside weights.
_COUNTER = re.compile(r'(beta[12]_power|global_step)(_\d+)?')


class Selection(NamedTuple):
  """The variables of a checkpoint, sorted."""

  scope: str  # of the core, e.g. 'model/relational_memory'
  core: dict[str, np.ndarray]  # by TensorFlow name, for `from_sonnet`
  optimizer: list[str]  # names of slots ('.../w/Adam') and step counters
  other: list[str]  # names of all other variables, such as the readout's


def from_sonnet(
  variables: Mapping[str, Any],
  scope: str | None = None,
  name: str = DEFAULT_NAME,
) -> dict[str, dict[str, np.ndarray]]:
  """Converts the original's variables to parameters for Haiku.

  The number of blocks, the layers of the MLP and whether there are gates follow
  from the names.

  Args:
    variables: TensorFlow name -> array, with or without a final ':0'; the
      core's variables only: 'model/relational_memory/linear/w', ... For a whole
      checkpoint, pass `select_core(variables).core`.
    scope: the core's scope, e.g. 'model/relational_memory'; None to find it.
    name: path of the core in the Haiku model, e.g. 'agent/relational_memory'.

  Returns:
    Haiku module path -> parameter name -> array, in the given dtypes.

  Raises:
    ValueError: a variable is missing, unknown, given twice or of a wrong shape,
      or the scope is ambiguous.
  """
  given = _without_output_index(variables)
  scope = _scope(scope, given, names.sonnet_scopes, 'scope=')
  advice = 'select_core(variables).core leaves them out'
  core = _below_scope(given, scope, advice)
  table = names.name_table(names.sonnet_structure(core))
  _check_names(core, [sonnet for sonnet, _ in table], scope)
  renamed = {haiku: core[sonnet] for sonnet, haiku in table}
  _check_shapes(renamed, {haiku: sonnet for sonnet, haiku in table}, scope)
  return checkpoint.unflatten({f'{name}/{k}': x for k, x in renamed.items()})


def to_sonnet(
  params: Mapping[str, Mapping[str, Any]],
  scope: str = DEFAULT_NAME,
  name: str | None = None,
) -> dict[str, np.ndarray]:
  """Converts Haiku parameters to the original's variables.

  Args:
    params: the core's parameters only. For a whole model, pass
      `hk.data_structures.filter(...)` of them.
    scope: the scope for the core's variables, e.g. 'model/relational_memory'.
    name: path of the core in the Haiku model; None to find it.

  Returns:
    TensorFlow name -> array, in the original's order of creation.

  Raises:
    ValueError: as for `from_sonnet`.
  """
  given = checkpoint.flatten(params)
  name = _scope(name, given, names.haiku_paths, 'name=')
  core = _below_scope(given, name, 'pass the parameters of the core alone')
  table = names.name_table(names.haiku_structure(core))
  _check_names(core, [haiku for _, haiku in table], name)
  _check_shapes(core, {haiku: haiku for haiku in core}, name)
  prefix = f'{scope}/' if scope else ''
  return {prefix + sonnet: core[haiku] for sonnet, haiku in table}


def select_core(
  variables: Mapping[str, Any], scope: str | None = None
) -> Selection:
  """Sorts all variables of a checkpoint; finds the core unless given its scope.

  Raises:
    ValueError: the variables have no core, or several.
  """
  given = _without_output_index(variables)
  optimizer = [
    name
    for name in given
    if _COUNTER.fullmatch(name.rsplit('/', 1)[-1]) or _is_slot(name, given)
  ]
  weights = {n: value for n, value in given.items() if n not in optimizer}
  scope = _scope(scope, weights, names.sonnet_scopes, 'scope=')
  core = {n: value for n, value in weights.items() if _is_below(n, scope)}
  other = [name for name in weights if name not in core]
  return Selection(scope, core, optimizer, other)


def _is_slot(name: str, variables: Mapping[str, Any]) -> bool:
  """Whether a name is a variable's plus one word: '<variable>/Adam'.

  An optimiser built inside a variable scope adds that scope in front.
  """
  owner = name.rsplit('/', 1)[0]
  while owner not in variables:
    if '/' not in owner:
      return False
    owner = owner.split('/', 1)[1]
  return owner != name


def _without_output_index(
  variables: Mapping[str, Any],
) -> dict[str, np.ndarray]:
  """Drops the ':0' of tensor names."""
  given = {}
  for name, value in variables.items():
    short = name.removesuffix(':0')
    if short in given:
      raise ValueError(
        f'The variable {short!r} is given twice, also as {short + ":0"!r}. '
        'Remove one.'
      )
    given[short] = np.asarray(value)
  return given


def _scope(
  scope: str | None,
  given: Iterable[str],
  find: Callable[[Iterable[str]], list[str]],
  argument: str,
) -> str:
  """Returns the given scope, or else the only one that has a core."""
  if scope is not None:
    return scope
  found = find(given)
  if not found:
    raise ValueError(
      'No relational memory found: no scope has linears, layer norms and an '
      f'mlp. Got the names {sorted(given)}.'
    )
  if len(found) > 1:
    raise ValueError(
      f'Several relational memories found: {found}. Choose one with {argument}.'
    )
  return found[0]


def _is_below(name: str, scope: str) -> bool:
  return not scope or name.startswith(f'{scope}/')


def _below_scope(
  given: Mapping[str, np.ndarray], scope: str, advice: str
) -> dict[str, np.ndarray]:
  """Removes the scope from all names; refuses names outside of it."""
  outside = [name for name in given if not _is_below(name, scope)]
  if outside:
    raise ValueError(
      f'Names must be under {scope!r}. Got: {sorted(outside)}; {advice}.'
    )
  prefix = f'{scope}/' if scope else ''
  return {name.removeprefix(prefix): value for name, value in given.items()}


def _check_names(given: Iterable[str], expected: list[str], scope: str) -> None:
  missing = [f'{scope}/{name}' for name in expected if name not in given]
  unknown = [f'{scope}/{name}' for name in given if name not in expected]
  found = {'missing': missing, 'unknown': unknown}
  problems = [f'{kind}: {wrong}' for kind, wrong in found.items() if wrong]
  if problems:
    raise ValueError(
      f'The variables under {scope!r} are not those of one relational memory; '
      + '; '.join(problems)
    )


def _check_shapes(
  variables: Mapping[str, np.ndarray], labels: Mapping[str, str], scope: str
) -> None:
  """Checks all shapes, by Haiku name, against the sizes most of them have."""
  widths = collections.defaultdict(collections.Counter)
  for haiku, value in variables.items():
    widths[_width_letter(haiku)][value.shape[-1] if value.ndim else 0] += 1
  size = {letter: w.most_common(1)[0][0] for letter, w in widths.items()}
  slot = size['D']
  # Matrices with any multiple of a number of rows; the others have D.
  free = {
    'input/w': ('input features', 1),
    'input_gates/w': (f'input rows * {slot}', slot),
  }
  problems = []
  for haiku, value in variables.items():
    shape, out = value.shape, size[_width_letter(haiku)]
    if not haiku.endswith('/w'):
      expected, fits = f'({out},)', shape == (out,)
    elif haiku in free:
      rows, multiple = free[haiku]
      expected = f'({rows}, {out})'
      fits = shape[1:] == (out,) and shape[0] % multiple == 0
    else:
      expected, fits = f'({slot}, {out})', shape == (slot, out)
    if not fits:
      problems.append(
        f'{scope}/{labels[haiku]} has shape {shape}, expected {expected}'
      )
  if size.get('2G', 2) not in (2, 2 * slot):
    problems.append(
      f'gates are {size["2G"]} wide, expected {2 * slot} (gate_style="unit") '
      'or 2 (gate_style="memory")'
    )
  if problems:
    raise ValueError('Wrong shapes: ' + '; '.join(problems))


def _width_letter(haiku: str) -> str:
  """The letter of a variable's last axis: D, F or 2G."""
  if 'qkv' in haiku:
    return 'F'
  return '2G' if '_gates' in haiku else 'D'


def main(arguments: list[str] | None = None) -> None:
  """Converts on the command line; see the module's docstring."""
  parser = argparse.ArgumentParser(
    prog='python -m rmc_jax.parity.convert',
    description='Moves a relational memory between a TensorFlow 1 checkpoint '
    'and an .npz file of Haiku parameters.',
  )
  parser.add_argument(
    '--python',
    help='interpreter with TensorFlow (default: the one that '
    'launch/parity.sh made)',
  )
  commands = parser.add_subparsers(dest='command', required=True)
  to_haiku = commands.add_parser(
    'to-haiku', help='TensorFlow 1 checkpoint -> Haiku parameters'
  )
  to_haiku.set_defaults(run=_to_haiku)
  add = to_haiku.add_argument
  add('checkpoint', help='model.ckpt-100, or its folder')
  add('params', help='the .npz file to write')
  add('--scope', help="the core's scope, where there are several cores")
  path = "the core's path in the Haiku model"
  add('--name', default=DEFAULT_NAME, help=path)
  to_tensorflow = commands.add_parser(
    'to-tensorflow', help='Haiku parameters -> TensorFlow 1 checkpoint'
  )
  to_tensorflow.set_defaults(run=_to_tensorflow)
  add = to_tensorflow.add_argument
  add('params', help='the .npz file to read')
  add('checkpoint', help='e.g. model.ckpt')
  scope = "the core's scope, as in model/relational_memory"
  add('--scope', default=DEFAULT_NAME, help=scope)
  options = parser.parse_args(arguments)
  try:
    lines = options.run(options)
  except (FileNotFoundError, ValueError) as error:
    raise SystemExit(str(error)) from error
  sys.stdout.write('\n'.join(lines) + '\n')


def _to_haiku(options: argparse.Namespace) -> list[str]:
  variables = checkpoint.read_checkpoint(
    options.checkpoint, python=options.python
  )
  scope, core, optimizer, other = select_core(variables, options.scope)
  params = from_sonnet(core, scope, options.name)
  checkpoint.save_params(options.params, params)
  return [
    f'{len(core)} variables under {scope!r} -> {options.params}',
    *(f'left out (optimizer): {name}' for name in optimizer),
    *(f'left out (other): {name}' for name in other),
  ]


def _to_tensorflow(options: argparse.Namespace) -> list[str]:
  params = checkpoint.load_params(options.params)
  variables = to_sonnet(params, options.scope)
  path = checkpoint.write_checkpoint(
    options.checkpoint, variables, python=options.python
  )
  return [f'{len(variables)} variables under {options.scope!r} -> {path}']


if __name__ == '__main__':
  main()
