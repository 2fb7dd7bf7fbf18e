"""The cases of the parity suite: what is compared, and with which tolerance.

The suite goes from the parts to the whole, then to random configurations over
all arguments. Both sides get the same arrays. Weights and inputs are float32
numbers, so a float64 run has exactly the same ones.
"""

from collections.abc import Callable
from collections.abc import Iterator
from typing import Any
from typing import NamedTuple

import numpy as np

from rmc_jax.parity.names import name_table
from rmc_jax.parity.names import Structure
from rmc_jax.parity.reference import Computation

# Makes an array of the given shape, its values spread over about (-2, 2).
Fill = Callable[..., np.ndarray]

# Name -> (tolerance, prefixes of the names of the results that are compared).
# The tolerance is the largest difference allowed in float32, as a fraction of
# the largest entry of the case. Half a unit in the last place is 6e-8 of an
# entry; docs/parity.md has the differences that were reached.
CHECKS: dict[str, tuple[float, tuple[str, ...]]] = {
  # One sum over 13 products, in any order.
  'linear': (1e-6, ('outputs',)),
  # A difference from the mean loses a digit before it is divided.
  'layer norm': (1e-6, ('outputs',)),
  # Linear, layer norm and softmax; each adds to the other's rounding.
  'attention': (2e-6, ('attention',)),
  # Adds the MLP and two more layer norms per block. Without gates, a step is
  # the input's linear and the blocks, nothing else.
  'blocks': (2e-6, ('outputs',)),
  # Sigmoids are at most 1/4 as steep as the rounding of their argument.
  'gates': (1e-6, ('input_gate', 'forget_gate')),
  'one step': (2e-6, ('outputs', 'state')),
  # Rounding is carried from step to step, damped by the gates.
  'steps': (
    1e-5,
    ('outputs', 'state', 'attention', 'input_gate', 'forget_gate'),
  ),
  # Sums over batch, steps and rows of products of two rounded factors, carried
  # back through all the steps.
  'gradients': (2e-5, ('gradients/',)),
  # Rounding of 100 updates, each applied to the result of the others.
  'losses': (1e-5, ('losses',)),
  'weights': (1e-5, ('weights/',)),
  # Zeros and ones.
  'initial state': (0.0, ('state',)),
  # Names, order and shapes exactly. Two spreads of 0.88, each of 1225 draws or
  # more, are within 3 standard errors of each other, 0.88 * 3 / sqrt(1225), and
  # the largest entry of the case is that of normals truncated at 2.
  'fresh weights': (0.04, ('weights/',)),
  # The same arguments refused with the same kind of error.
  'errors': (0.0, ('',)),
  # The same vectors in, ones and zeros and labels out.
  'dataset': (0.0, ('inputs', 'labels')),
  # As 'steps'; the weights were saved and restored in between.
  'checkpoint read': (1e-5, ('outputs', 'state')),
  'checkpoint written': (1e-5, ('outputs', 'state')),
}


class Case(NamedTuple):
  """One row of the report. Several cases may share a computation."""

  name: str  # a key of `CHECKS`
  computation: Computation
  configuration: str  # the sizes and arguments in short

  @property
  def tolerance(self) -> float:
    """The largest relative difference allowed in float32."""
    return CHECKS[self.name][0]

  @property
  def keys(self) -> tuple[str, ...]:
    """Prefixes of the names of the results that are compared."""
    return CHECKS[self.name][1]

  @property
  def statistical(self) -> bool:
    """Whether each side draws its own numbers, so no digit need agree."""
    return self.name == 'fresh weights'


class Size(NamedTuple):
  """Sizes that are not arguments of the core; see rmc_jax.types for letters."""

  batch: int  # B
  steps: int  # T
  features: int  # of the input, or of each of its rows
  rows: int | None = None  # I of a matrix input; None for a flat one


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


def suite(fill: Fill) -> list[Case]:
  """The cases of fixed sizes, from the smallest part to training."""
  matrix = SIZE._replace(rows=2)
  one_block = ARGUMENTS | {'num_blocks': 1, 'gate_style': None}
  three_blocks = one_block | {'num_blocks': 3}
  unit = ARGUMENTS | {'gate_style': 'unit'}
  biases = {'forget_bias': -0.5, 'input_bias': 0.25}
  per_slot = ARGUMENTS | {'gate_style': 'memory', **biases}
  ungated = ARGUMENTS | {'gate_style': None}
  many_slots = ARGUMENTS | {'mem_slots': 11, 'head_size': 3, 'num_heads': 2}

  cases = [linear_case(fill, 17, 13, 19), layer_norm_case(fill, 17, 145)]
  for names, arguments, size in [
    (['attention', 'blocks'], one_block, matrix),
    (['attention', 'blocks'], three_blocks, matrix),
    (['gates', 'one step'], unit, SIZE),
    (['gates', 'one step'], per_slot, SIZE),
    (['one step'], ungated, SIZE),
    (['gates', 'one step'], unit, matrix),
  ]:
    cases += unroll_cases(names, fill, arguments, size._replace(steps=1))
  for arguments, size in [
    (unit, SIZE),
    (per_slot, matrix),
    (ungated, SIZE),
    (many_slots, SIZE),
  ]:
    cases += unroll_cases(['steps', 'gradients'], fill, arguments, size)
  cases += train_cases(['losses'], fill, unit, SIZE, updates=100)
  cases += train_cases(
    ['losses', 'weights'], fill, per_slot, matrix, updates=100, epsilon=1e-5
  )
  cases += create_cases(['initial state', 'fresh weights'], unit)
  cases += create_cases(['initial state'], many_slots)
  return [*cases, *error_cases(), dataset_case(fill, 7, 3)]


def random_cases(count: int, seed: int) -> list[Case]:
  """Configurations drawn over all arguments, two cases each."""
  cases = []
  for index in range(count):
    cases += _random_unroll(f'{index}: ', np.random.default_rng([seed, index]))
  return cases


def _random_unroll(label: str, rng: np.random.Generator) -> list[Case]:
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
  query_scale = choose('key', 'key', 'qkv')
  names, fill = ['steps', 'gradients'], rng.standard_normal
  return unroll_cases(names, fill, arguments, size, query_scale, label)


def linear_case(fill: Fill, rows: int, features: int, size: int) -> Case:
  """The layer that everything else is made of."""
  arrays = {
    'inputs': fill([rows, features]),
    'weights/linear/w': fill([features, size]),
    'weights/linear/b': fill([size]),
  }
  configuration, settings = f'{features} -> {size}', {'size': size}
  return _cases(['linear'], 'linear', configuration, settings, arrays)[0]


def layer_norm_case(fill: Fill, rows: int, features: int) -> Case:
  """Layer norm over the features of a row, with scale and offset."""
  arrays = {
    # Off centre, so that the mean matters.
    'inputs': 3.0 + fill([rows, features]),
    'weights/layer_norm/gamma': 1.0 + 0.2 * fill([features]),
    'weights/layer_norm/beta': 0.2 * fill([features]),
  }
  configuration = f'{features} features'
  return _cases(['layer norm'], 'layer_norm', configuration, {}, arrays)[0]


def unroll_cases(
  names: list[str],
  fill: Fill,
  arguments: dict[str, Any],
  size: Size,
  query_scale: str = 'key',
  label: str = '',
) -> list[Case]:
  """Cases of one unroll of T steps, or of one step if T is 1."""
  inputs, memory, outputs = _shapes(arguments, size)
  arrays = make_weights(arguments, size, fill)
  arrays |= {'inputs': fill(inputs), 'state': fill(memory)}
  if 'gradients' in names:
    arrays['cotangents/outputs'] = fill(outputs)
    arrays['cotangents/state'] = fill(memory)
  settings = {
    'arguments': arguments,
    'treat_input_as_matrix': size.rows is not None,
    'query_scale': query_scale,
  }
  configuration = f'{label}{describe(arguments, size, query_scale)}'
  return _cases(names, 'unroll', configuration, settings, arrays)


def train_cases(
  names: list[str],
  fill: Fill,
  arguments: dict[str, Any],
  size: Size,
  updates: int,
  epsilon: float = 1e-8,
) -> list[Case]:
  """Adam from the same weights on the same batches, at a rate of 1e-3.

  No output depends on the keys' offsets, so their gradients are rounding alone.
  With TensorFlow's epsilon of 1e-8 such a gradient moves its weight by up to
  the learning rate, with a larger one it does not. So the final weights are
  compared with a larger epsilon; the losses do not depend on it.
  """
  inputs, memory, outputs = _shapes(arguments, size)
  arrays = make_weights(arguments, size, fill)
  arrays |= {
    'inputs': fill([updates, *inputs]),
    'targets': fill([updates, *outputs]),
    'state': fill(memory),
  }
  settings = {
    'arguments': arguments,
    'treat_input_as_matrix': size.rows is not None,
    'query_scale': 'key',
    'learning_rate': 1e-3,
    'epsilon': epsilon,
  }
  sizes = describe(arguments, size)
  configuration = f'{updates} of Adam, epsilon {epsilon:.0e}: {sizes}'
  return _cases(names, 'train', configuration, settings, arrays)


def create_cases(names: list[str], arguments: dict[str, Any]) -> list[Case]:
  """A new core: the identity as its state, and how its weights are spread."""
  size = Size(batch=2, steps=1, features=101)
  inputs, memory, _ = _shapes(arguments, size)
  arrays = {'inputs': np.zeros(inputs), 'state': np.zeros(memory)}
  settings = {'arguments': arguments, 'treat_input_as_matrix': False, 'seed': 1}
  return _cases(names, 'create', describe(arguments, size), settings, arrays)


def error_cases() -> list[Case]:
  """Arguments that the original refuses."""
  refused = {'num_blocks': 0, 'attention_mlp_layers': 0, 'gate_style': 'units'}
  return [
    create_cases(['errors'], ARGUMENTS | {argument: value})[0]
    for argument, value in refused.items()
  ]


def dataset_case(fill: Fill, objects: int, features: int) -> Case:
  """Nth Farthest beside the authors' dataset, for every n and m."""
  n, m = np.divmod(np.arange(objects**2), objects)
  arrays = {
    'vectors': fill([objects**2, objects, features]),
    'order': np.argsort(fill([objects**2, objects]), axis=1),
    'n': n,
    'm': m,
  }
  settings = {'num_objects': objects, 'num_features': features}
  configuration = f'Nth Farthest, {objects} vectors of {features} features'
  return _cases(['dataset'], 'nth_farthest', configuration, settings, arrays)[0]


def _cases(
  names: list[str],
  kind: str,
  configuration: str,
  settings: dict[str, Any],
  arrays: dict[str, np.ndarray],
) -> list[Case]:
  """Cases that share a computation."""
  arrays = {name: np.asarray(x, np.float32) for name, x in arrays.items()}
  name = f'{kind} {configuration}'
  computation = Computation(name, kind, settings, arrays)
  return [Case(name, computation, configuration) for name in names]


def _shapes(
  arguments: dict[str, Any], size: Size
) -> tuple[list[int], list[int], list[int]]:
  """Shapes of the inputs, of the state and of the outputs."""
  slots = arguments['mem_slots']
  width = arguments['head_size'] * arguments['num_heads']
  leading = [size.steps, size.batch]
  rows = [] if size.rows is None else [size.rows]
  inputs = [*leading, *rows, size.features]
  return inputs, [size.batch, slots, width], [*leading, slots * width]


def make_weights(
  arguments: dict[str, Any], size: Size, fill: Fill
) -> dict[str, np.ndarray]:
  """Returns `weights/<TensorFlow name>` -> array for every variable.

  No variable has its initial value, so none can be left out unnoticed.
  """
  weights = {}
  for sonnet, leaf, shape in weight_shapes(arguments, size.features, size.rows):
    if leaf == 'w':
      value = fill(shape) / np.sqrt(shape[0])
    else:
      value = 0.2 * fill(shape) + (leaf == 'scale')
    weights[f'weights/relational_memory/{sonnet}'] = value
  return weights


def weight_shapes(
  arguments: dict[str, Any], features: int, rows: int | None = None
) -> Iterator[tuple[str, str, tuple[int, ...]]]:
  """Yields each variable's TensorFlow name, its Haiku parameter and its shape.

  The inputs have `features`, in each row of a matrix.
  """
  slot = arguments['head_size'] * arguments['num_heads']  # D
  key = arguments.get('key_size') or arguments['head_size']  # K
  qkv = arguments['num_heads'] * (2 * key + arguments['head_size'])  # F
  style = arguments.get('gate_style', 'unit')
  gates = 2 * (slot if style == 'unit' else 1)  # 2 * G
  shapes = {
    'input': (features, slot),
    'qkv': (slot, qkv),
    'qkv_norm': (qkv,),
    'attention_norm': (slot,),
    'mlp_norm': (slot,),
    'input_gates': ((rows or 1) * slot, gates),
    'memory_gates': (slot, gates),
  }
  structure = Structure(
    arguments.get('num_blocks', 1),
    arguments.get('attention_mlp_layers', 2),
    gated=style is not None,
  )
  for sonnet, haiku in name_table(structure):
    layer, leaf = haiku.split('/')[-2:]
    shape = shapes.get(layer, (slot, slot))  # the MLP's are square
    yield sonnet, leaf, shape if leaf == 'w' else shape[-1:]


def describe(
  arguments: dict[str, Any], size: Size, query_scale: str = 'key'
) -> str:
  """A configuration in one short line."""
  a = {'num_heads': 1, 'num_blocks': 1, 'gate_style': 'unit'} | arguments
  rows = f'{size.rows}x' if size.rows else ''
  words = [
    f'B{size.batch} T{size.steps}',
    f'N{a["mem_slots"]} H{a["num_heads"]} V{a["head_size"]}',
    f'K{a.get("key_size") or a["head_size"]}',
    f'in {rows}{size.features} blocks {a["num_blocks"]}',
    f'mlp {a.get("attention_mlp_layers", 2)} gates {a["gate_style"]}',
  ]
  if 'forget_bias' in a:
    words.append(f'bias {a["forget_bias"]:g} {a["input_bias"]:g}')
  if query_scale != 'key':
    words.append(query_scale)
  return ' '.join(words)
