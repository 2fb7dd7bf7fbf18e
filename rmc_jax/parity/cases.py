"""The rungs of the ladder: what is compared, on which numbers, how closely.

From parts to the whole: linear, layer norm, attention, blocks, gates, one step,
many steps, gradients, training; then random configurations over all arguments.
A case is plain data that both sides get. Weights and inputs are float32
numbers, so that a float64 run has the very same ones.
"""

from collections.abc import Callable
from collections.abc import Iterator
from typing import Any
from typing import NamedTuple

import numpy as np

from rmc_jax.parity.names import name_table
from rmc_jax.parity.names import Structure
from rmc_jax.parity.reference import Case

# Makes an array of the given shape, its values spread over about (-2, 2).
Fill = Callable[..., np.ndarray]

# Largest difference allowed in float32, as a fraction of the largest entry on
# the rung. Half a unit in the last place is 6e-8 of an entry; docs/parity.md
# has the differences that were reached.
TOLERANCES = {
  # One sum over 13 products, in whatever order.
  'linear': 1e-6,
  # A difference from the mean loses a digit before it is divided.
  'layer norm': 1e-6,
  # Linear, layer norm, softmax; each on top of the other's rounding.
  'attention': 2e-6,
  # Adds the MLP and two more layer norms a block.
  'blocks': 2e-6,
  # Sigmoids are at most 1/4 as steep as the rounding of their argument.
  'gates': 1e-6,
  'one step': 2e-6,
  # Rounding is carried from step to step, damped by the gates.
  'steps': 1e-5,
  # Sums over batch, steps and rows of products of two rounded factors, carried
  # back through all the steps.
  'gradients': 2e-5,
  # Rounding of 100 updates, each of them on top of the others.
  'losses': 1e-5,
  'weights': 1e-5,
  # Zeros and ones.
  'initial state': 0.0,
  # Names, order and shapes exactly. Two spreads of 0.88, each of 1225 draws or
  # more, are within 3 standard errors of each other, 0.88 * 3 / sqrt(1225), and
  # the largest number on the rung is that of normals cut off at 2.
  'fresh weights': 0.04,
  # The same arguments refused with the same kind of error.
  'errors': 0.0,
  # The same vectors in, ones and zeros and labels out.
  'dataset': 0.0,
  # As 'steps'; the weights have been to the disk.
  'checkpoint read': 1e-5,
  'checkpoint written': 1e-5,
}


class Rung(NamedTuple):
  """One line of the report.

  Attributes:
    name: what is compared; a key of `TOLERANCES`.
    case: the computation.
    keys: beginnings of the names of the results to compare.
    configuration: the sizes and arguments in short.
  """

  name: str
  case: Case
  keys: tuple[str, ...]
  configuration: str

  @property
  def tolerance(self) -> float:
    """The largest relative difference allowed in float32."""
    return TOLERANCES[self.name]

  @property
  def statistical(self) -> bool:
    """Whether the sides draw numbers of their own, so no digit need agree."""
    return self.name == 'fresh weights'


class Size(NamedTuple):
  """Sizes that are not arguments of the core; see rmc_jax.types for letters.

  Attributes:
    batch: B.
    steps: T.
    features: of the input, or of each of its rows.
    rows: I of a matrix input; None for a flat one.
  """

  batch: int
  steps: int
  features: int
  rows: int | None = None


# Distinct primes, so that no two axes can be mistaken for one another.
SIZE = Size(batch=2, steps=4, features=13)
ARGUMENTS = {
  'mem_slots': 3,
  'head_size': 7,
  'num_heads': 5,
  'key_size': 11,
  'num_blocks': 2,
  'attention_mlp_layers': 3,
}


def ladder(fill: Fill) -> list[Rung]:
  """The rungs on fixed sizes, from the smallest part to training."""
  matrix = SIZE._replace(rows=2)
  one_block = {**ARGUMENTS, 'num_blocks': 1, 'gate_style': None}
  biases = {'forget_bias': -0.5, 'input_bias': 0.25}
  unit = {**ARGUMENTS, 'gate_style': 'unit'}
  per_slot = {**ARGUMENTS, 'gate_style': 'memory', **biases}
  ungated = {**ARGUMENTS, 'gate_style': None}
  wide = {**ARGUMENTS, 'mem_slots': 11, 'head_size': 3, 'num_heads': 2}

  rungs = [
    linear_rung(fill, 17, 13, 19),
    layer_norm_rung(fill, 17, 145),
  ]
  for arguments in one_block, {**one_block, 'num_blocks': 3}:
    rungs += unroll_rungs(
      ['attention', 'blocks'], fill, arguments, matrix._replace(steps=1)
    )
  for names, arguments, size in [
    (['gates', 'one step'], unit, SIZE),
    (['gates', 'one step'], per_slot, SIZE),
    (['one step'], ungated, SIZE),
    (['gates', 'one step'], unit, matrix),
  ]:
    rungs += unroll_rungs(names, fill, arguments, size._replace(steps=1))
  for arguments, size in [
    (unit, SIZE),
    (per_slot, matrix),
    (ungated, SIZE),
    (wide, SIZE),
  ]:
    rungs += unroll_rungs(['steps', 'gradients'], fill, arguments, size)
  rungs += train_rungs(['losses'], fill, unit, SIZE, updates=100)
  rungs += train_rungs(
    ['losses', 'weights'], fill, per_slot, matrix, updates=100, epsilon=1e-5
  )
  rungs += [initial_state_rung(unit, 2), initial_state_rung(wide, 2)]
  rungs += [fresh_weights_rung(unit), *error_rungs(), dataset_rung(fill, 7, 3)]
  return rungs


def random_rungs(count: int, seed: int) -> Iterator[list[Rung]]:
  """Configurations drawn over all arguments, two rungs each."""
  for index in range(count):
    rng = np.random.default_rng([seed, index])
    arguments, size, query_scale = _random_configuration(rng)
    yield unroll_rungs(
      ['steps', 'gradients'],
      rng.standard_normal,
      arguments,
      size,
      query_scale=query_scale,
      label=f'{index}: ',
    )


def _random_configuration(
  rng: np.random.Generator,
) -> tuple[dict[str, Any], Size, str]:
  """(arguments, sizes, query scale), each drawn from all its values."""

  def choose(*values):
    return values[rng.integers(len(values))]

  arguments = {
    'mem_slots': choose(1, 2, 3, 5, 7, 11, 13),
    'head_size': choose(2, 3, 5, 7, 11),
    'num_heads': choose(1, 2, 3, 5),
    'key_size': choose(None, 1, 3, 7, 13),
    'num_blocks': choose(1, 2, 3),
    'attention_mlp_layers': choose(1, 2, 3, 5),
    'gate_style': choose('unit', 'memory', None),
    'forget_bias': choose(1.0, 0.0, -0.7, 2.3),
    'input_bias': choose(0.0, 1.0, -1.3),
  }
  size = Size(
    batch=choose(1, 2, 3, 5),
    steps=choose(1, 2, 3, 5),
    features=choose(1, 2, 5, 17),
    rows=choose(None, None, 1, 2, 5),
  )
  return arguments, size, choose('key', 'key', 'qkv')


def linear_rung(fill: Fill, rows: int, features: int, size: int) -> Rung:
  """The layer that everything else is made of."""
  arrays = {
    'inputs': _float32(fill([rows, features])),
    'weights/linear/w': _float32(fill([features, size])),
    'weights/linear/b': _float32(fill([size])),
  }
  case = Case('linear', 'linear', {'size': size}, arrays)
  return Rung('linear', case, ('outputs',), f'{features} -> {size}')


def layer_norm_rung(fill: Fill, rows: int, features: int) -> Rung:
  """Over the features of a row, with scale and offset."""
  arrays = {
    # Off centre, so that the mean has something to take away.
    'inputs': _float32(3.0 + fill([rows, features])),
    'weights/layer_norm/gamma': _float32(1.0 + 0.2 * fill([features])),
    'weights/layer_norm/beta': _float32(0.2 * fill([features])),
  }
  case = Case('layer norm', 'layer_norm', {}, arrays)
  return Rung('layer norm', case, ('outputs',), f'{features} features')


def unroll_rungs(
  names: list[str],
  fill: Fill,
  arguments: dict[str, Any],
  size: Size,
  query_scale: str = 'key',
  label: str = '',
) -> list[Rung]:
  """Rungs on one unroll of T steps, or on one step if T is 1."""
  width = arguments['head_size'] * arguments['num_heads']
  slots = arguments['mem_slots']
  leading = [size.steps, size.batch]
  arrays = {
    **make_weights(arguments, size, fill),
    'inputs': _float32(fill(leading + _input_axes(size))),
    'state': _float32(fill([size.batch, slots, width])),
  }
  if 'gradients' in names:
    arrays['cotangents/outputs'] = _float32(fill(leading + [slots * width]))
    arrays['cotangents/state'] = _float32(fill([size.batch, slots, width]))
  settings = {
    'arguments': arguments,
    'treat_input_as_matrix': size.rows is not None,
    'query_scale': query_scale,
  }
  # Without gates, a step is the input's linear and the blocks, nothing else.
  keys = {
    'attention': ('attention',),
    'blocks': ('outputs',),
    'gates': ('input_gate', 'forget_gate'),
    'one step': ('outputs', 'state'),
    'steps': ('outputs', 'state', 'attention', 'input_gate', 'forget_gate'),
    'gradients': ('gradients/',),
    'checkpoint read': ('outputs', 'state'),
    'checkpoint written': ('outputs', 'state'),
  }
  configuration = f'{label}{describe(arguments, size, query_scale)}'
  case = Case(f'unroll {configuration}', 'unroll', settings, arrays)
  return [Rung(name, case, keys[name], configuration) for name in names]


def train_rungs(
  names: list[str],
  fill: Fill,
  arguments: dict[str, Any],
  size: Size,
  updates: int,
  epsilon: float = 1e-8,
) -> list[Rung]:
  """Adam from the same weights on the same batches, 1e-3 a step.

  With TensorFlow's own epsilon, 1e-8, a gradient that is all rounding moves its
  weight by up to the learning rate, and there are such gradients: no output
  depends on the keys' offsets. So the final weights are compared with a larger
  epsilon, which leaves them where they are; the losses do not mind.
  """
  width = arguments['head_size'] * arguments['num_heads']
  slots = arguments['mem_slots']
  leading = [updates, size.steps, size.batch]
  arrays = {
    **make_weights(arguments, size, fill),
    'inputs': _float32(fill(leading + _input_axes(size))),
    'targets': _float32(fill([*leading, slots * width])),
    'state': _float32(fill([size.batch, slots, width])),
  }
  settings = {
    'arguments': arguments,
    'treat_input_as_matrix': size.rows is not None,
    'query_scale': 'key',
    'learning_rate': 1e-3,
    'epsilon': epsilon,
  }
  configuration = (
    f'{updates} of Adam, epsilon {epsilon:.0e}: {describe(arguments, size)}'
  )
  case = Case(configuration, 'train', settings, arrays)
  keys = {'losses': ('losses',), 'weights': ('weights/',)}
  return [Rung(name, case, keys[name], configuration) for name in names]


def initial_state_rung(arguments: dict[str, Any], batch_size: int) -> Rung:
  """The padded, or cut, identity."""
  settings = {'arguments': arguments, 'batch_size': batch_size}
  width = arguments['head_size'] * arguments['num_heads']
  configuration = f'{arguments["mem_slots"]} slots of width {width}'
  case = Case(f'initial state {configuration}', 'initial_state', settings, {})
  return Rung('initial state', case, ('state',), configuration)


def fresh_weights_rung(arguments: dict[str, Any]) -> Rung:
  """Which variables there are, and how their initialisers spread them."""
  size = Size(batch=1, steps=1, features=101)
  slot = arguments['head_size'] * arguments['num_heads']
  arrays = {
    'inputs': np.zeros([1, 1, size.features], np.float32),
    'state': np.zeros([1, arguments['mem_slots'], slot], np.float32),
  }
  settings = {'arguments': arguments, 'treat_input_as_matrix': False, 'seed': 1}
  configuration = describe(arguments, size)
  case = Case(
    f'fresh weights {configuration}', 'fresh_weights', settings, arrays
  )
  return Rung('fresh weights', case, ('',), configuration)


def error_rungs() -> list[Rung]:
  """Arguments that the original refuses."""
  rungs = []
  for argument, value in [
    ('num_blocks', 0),
    ('attention_mlp_layers', 0),
    ('gate_style', 'units'),
  ]:
    settings = {'arguments': {**ARGUMENTS, argument: value}}
    configuration = f'{argument}={value!r}'
    case = Case(f'refused {configuration}', 'refused', settings, {})
    rungs.append(Rung('errors', case, ('',), configuration))
  return rungs


def dataset_rung(fill: Fill, objects: int, features: int) -> Rung:
  """Nth Farthest beside the authors' dataset, for every n and m."""
  n, m = np.divmod(np.arange(objects**2), objects)
  arrays = {
    'vectors': _float32(fill([objects**2, objects, features])),
    'order': _float32(np.argsort(fill([objects**2, objects]), axis=1)),
    'n': _float32(n),
    'm': _float32(m),
  }
  settings = {'num_objects': objects, 'num_features': features}
  configuration = f'Nth Farthest, {objects} vectors of {features} features'
  case = Case('dataset', 'nth_farthest', settings, arrays)
  return Rung('dataset', case, ('inputs', 'labels'), configuration)


def make_weights(
  arguments: dict[str, Any], size: Size, fill: Fill
) -> dict[str, np.ndarray]:
  """Weights for every variable, `weights/<TensorFlow name>` -> array.

  Nothing is left at its initial value, so nothing can be left out unseen.
  """
  slot = arguments['head_size'] * arguments['num_heads']  # D
  key = arguments.get('key_size') or arguments['head_size']  # K
  qkv = arguments['num_heads'] * (2 * key + arguments['head_size'])  # F
  style = arguments.get('gate_style', 'unit')
  gates = 2 * (slot if style == 'unit' else 1)  # 2 * G
  shapes = {
    'input': (size.features, slot),
    'qkv': (slot, qkv),
    'qkv_norm': (qkv,),
    'attention_norm': (slot,),
    'mlp_norm': (slot,),
    'input_gates': ((size.rows or 1) * slot, gates),
    'memory_gates': (slot, gates),
  }
  weights = {}
  structure = Structure(
    arguments.get('num_blocks', 1),
    arguments.get('attention_mlp_layers', 2),
    gated=style is not None,
  )
  for sonnet, haiku in name_table(structure):
    layer, leaf = haiku.split('/')[-2:]
    shape = shapes.get(layer, (slot, slot))  # the MLP's are square
    if leaf == 'w':
      value = fill(shape) / np.sqrt(shape[0])
    elif leaf == 'scale':
      value = 1.0 + 0.2 * fill(shape)
    else:
      value = 0.2 * fill(shape[-1:])
    weights[f'weights/relational_memory/{sonnet}'] = _float32(value)
  return weights


def describe(
  arguments: dict[str, Any], size: Size, query_scale: str = 'key'
) -> str:
  """A configuration in one short line."""
  a = arguments
  words = [
    f'B{size.batch} T{size.steps}',
    f'N{a["mem_slots"]} H{a.get("num_heads", 1)} V{a["head_size"]}',
    f'K{a.get("key_size") or a["head_size"]}',
    f'in {f"{size.rows}x" if size.rows else ""}{size.features}',
    f'blocks {a.get("num_blocks", 1)}',
    f'mlp {a.get("attention_mlp_layers", 2)}',
    f'gates {a.get("gate_style", "unit")}',
  ]
  if 'forget_bias' in a:
    words.append(f'bias {a["forget_bias"]:g} {a["input_bias"]:g}')
  if query_scale != 'key':
    words.append(query_scale)
  return ' '.join(words)


def _input_axes(size: Size) -> list[int]:
  return [size.features] if size.rows is None else [size.rows, size.features]


def _float32(value: np.ndarray) -> np.ndarray:
  return np.asarray(value, np.float32)
