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
from collections.abc import Iterable
from collections.abc import Mapping
import re
import sys
from typing import Any
from typing import NamedTuple

import numpy as np

from rmc_jax.parity.checkpoint import flatten
from rmc_jax.parity.checkpoint import load_params
from rmc_jax.parity.checkpoint import read_checkpoint
from rmc_jax.parity.checkpoint import save_params
from rmc_jax.parity.checkpoint import unflatten
from rmc_jax.parity.checkpoint import write_checkpoint
from rmc_jax.parity.names import haiku_paths
from rmc_jax.parity.names import haiku_structure
from rmc_jax.parity.names import name_table
from rmc_jax.parity.names import sonnet_scopes
from rmc_jax.parity.names import sonnet_structure

DEFAULT_NAME = 'relational_memory'

# Scalars that TensorFlow 1 optimisers and training loops save beside weights.
_COUNTER = re.compile(r'(beta[12]_power|global_step)(_\d+)?')


class Selection(NamedTuple):
  """The variables of a checkpoint, sorted.

  Attributes:
    scope: the scope of the core, e.g. 'model/relational_memory'.
    core: TensorFlow name -> array, the variables of the core.
    optimizer: names of optimiser slots ('.../w/Adam') and step counters.
    other: names of all other variables, such as those of the readout.
  """

  scope: str
  core: dict[str, np.ndarray]
  optimizer: list[str]
  other: list[str]


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
  if scope is None:
    scope = _only_one(sonnet_scopes(given), given, 'scope=')
  below = _below_scope(
    given, scope, 'select_core(variables).core leaves them out'
  )
  table = name_table(sonnet_structure(below))
  _check_names(below, [sonnet for sonnet, _ in table], scope)
  renamed = {haiku: below[sonnet] for sonnet, haiku in table}
  _check_shapes(renamed, {haiku: sonnet for sonnet, haiku in table}, scope)
  return unflatten({f'{name}/{haiku}': x for haiku, x in renamed.items()})


def to_sonnet(
  params: Mapping[str, Mapping[str, Any]],
  scope: str = DEFAULT_NAME,
  name: str | None = None,
) -> dict[str, np.ndarray]:
  """Converts Haiku parameters to the original's variables.

  Args:
    params: Haiku module path -> parameter name -> array; the core's parameters
      only. For a whole model, pass `hk.data_structures.filter(...)` of them.
    scope: the scope for the core's variables, e.g. 'model/relational_memory'.
    name: path of the core in the Haiku model; None to find it.

  Returns:
    TensorFlow name -> array, in the original's order of creation.

  Raises:
    ValueError: as for `from_sonnet`.
  """
  given = flatten(params)
  if name is None:
    name = _only_one(haiku_paths(given), given, 'name=')
  below = _below_scope(given, name, 'pass the parameters of the core alone')
  table = name_table(haiku_structure(below))
  _check_names(below, [haiku for _, haiku in table], name)
  _check_shapes(below, {haiku: haiku for haiku in below}, name)
  prefix = f'{scope}/' if scope else ''
  return {prefix + sonnet: below[haiku] for sonnet, haiku in table}


def select_core(
  variables: Mapping[str, Any], scope: str | None = None
) -> Selection:
  """Sorts all variables of a checkpoint into a `Selection`.

  Args:
    variables: TensorFlow name -> array, e.g. from `read_checkpoint`.
    scope: the core's scope; None to find it.

  Returns:
    The `Selection`, whose `core` is the argument of `from_sonnet`.

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
  if scope is None:
    scope = _only_one(sonnet_scopes(weights), weights, 'scope=')
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


def _only_one(found: list[str], names: Iterable[str], argument: str) -> str:
  if not found:
    raise ValueError(
      'No relational memory found: no scope has linears, layer norms and an '
      f'mlp. Got the names {sorted(names)}.'
    )
  if len(found) > 1:
    raise ValueError(
      f'Several relational memories found: {found}. Choose one with {argument}.'
    )
  return found[0]


def _is_below(name: str, scope: str) -> bool:
  return name.startswith(f'{scope}/') if scope else True


def _below_scope(
  given: Mapping[str, np.ndarray], scope: str, advice: str
) -> dict[str, np.ndarray]:
  """Removes the scope from all names; refuses names outside of it."""
  outside = [name for name in given if not _is_below(name, scope)]
  if outside:
    raise ValueError(
      f'Names must be under {scope!r}. Got: {sorted(outside)}; {advice}.'
    )
  cut = len(scope) + 1 if scope else 0
  return {name[cut:]: value for name, value in given.items()}


def _check_names(given: Iterable[str], expected: list[str], scope: str) -> None:
  missing = [f'{scope}/{name}' for name in expected if name not in given]
  unknown = [f'{scope}/{name}' for name in given if name not in expected]
  found = {'missing': missing, 'unknown': unknown}
  problems = [f'{kind}: {names}' for kind, names in found.items() if names]
  if problems:
    raise ValueError(
      f'The variables under {scope!r} are not those of one relational memory; '
      + '; '.join(problems)
    )


def _check_shapes(
  variables: Mapping[str, np.ndarray], names: Mapping[str, str], scope: str
) -> None:
  """Checks all shapes against the sizes that most of them agree on.

  Args:
    variables: Haiku name below the core -> array; complete.
    names: Haiku name -> name for the message.
    scope: for the message.
  """
  widths = collections.defaultdict(collections.Counter)
  for haiku, value in variables.items():
    widths[_width_letter(haiku)][value.shape[-1] if value.ndim else 0] += 1
  size = {letter: w.most_common(1)[0][0] for letter, w in widths.items()}
  slot = size['D']
  free = {'input/w': 'input features', 'input_gates/w': f'input rows * {slot}'}
  problems = []
  for haiku, value in variables.items():
    shape, out = value.shape, size[_width_letter(haiku)]
    if haiku.endswith('/w'):
      expected = f'({free.get(haiku, slot)}, {out})'
      fits = shape == (slot, out) or (
        haiku in free
        and shape[1:] == (out,)
        and (haiku == 'input/w' or shape[0] % slot == 0)
      )
    else:
      expected, fits = f'({out},)', shape == (out,)
    if not fits:
      problems.append(
        f'{scope}/{names[haiku]} has shape {shape}, expected {expected}'
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
  to_haiku.add_argument('checkpoint', help='model.ckpt-100, or its folder')
  to_haiku.add_argument('params', help='the .npz file to write')
  to_haiku.add_argument(
    '--scope', help="the core's scope, where there are several cores"
  )
  to_haiku.add_argument(
    '--name', default=DEFAULT_NAME, help="the core's path in the Haiku model"
  )
  to_tensorflow = commands.add_parser(
    'to-tensorflow', help='Haiku parameters -> TensorFlow 1 checkpoint'
  )
  to_tensorflow.add_argument('params', help='the .npz file to read')
  to_tensorflow.add_argument('checkpoint', help='e.g. model.ckpt')
  to_tensorflow.add_argument(
    '--scope',
    default=DEFAULT_NAME,
    help="the core's scope, as in model/relational_memory",
  )
  to_haiku.set_defaults(run=_to_haiku)
  to_tensorflow.set_defaults(run=_to_tensorflow)
  options = parser.parse_args(arguments)
  try:
    options.run(options)
  except (FileNotFoundError, ValueError) as error:
    raise SystemExit(str(error)) from error


def _to_haiku(options: argparse.Namespace) -> None:
  variables = read_checkpoint(options.checkpoint, python=options.python)
  selection = select_core(variables, options.scope)
  params = from_sonnet(selection.core, selection.scope, options.name)
  save_params(options.params, params)
  lines = [
    f'{len(selection.core)} variables under {selection.scope!r} -> '
    f'{options.params}'
  ]
  lines += [f'left out (optimizer): {name}' for name in selection.optimizer]
  lines += [f'left out (other): {name}' for name in selection.other]
  sys.stdout.write('\n'.join(lines) + '\n')


def _to_tensorflow(options: argparse.Namespace) -> None:
  variables = to_sonnet(load_params(options.params), options.scope)
  path = write_checkpoint(options.checkpoint, variables, python=options.python)
  sys.stdout.write(
    f'{len(variables)} variables under {options.scope!r} -> {path}\n'
  )


if __name__ == '__main__':
  main()
