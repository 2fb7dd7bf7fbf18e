"""Runs the original: the authors' Sonnet module on TensorFlow.

A stand-alone program that imports nothing of rmc_jax, for Python 3.7 with
TensorFlow 1.15 or, through the shims at the end of this file, a current Python
with TensorFlow 2:

  python -I reference_runner.py FOLDER

FOLDER/request.json   {"sonnet_path": folder or null, "computations": [...]}
FOLDER/request.npz    the arrays of computation c under the names "c/<array>"
FOLDER/response.json  {"python": version, "tensorflow": ..., ...}
FOLDER/response.npz   the results of computation c under the names "c/<array>"

A computation is {"name": ..., "kind": a key of KINDS, "settings": {...}}. It
runs in the dtype of its arrays. One start serves many computations, because
importing TensorFlow takes longer than most of them.
"""
# pyright: reportMissingImports=false, reportMissingModuleSource=false
# pyright: reportAttributeAccessIssue=false
# The rest of the project is Python 3.11; this file must stay valid 3.7.

import collections
import collections.abc
import importlib
import inspect
import json
import os
import sys
import types

import numpy as np


def main(folder):
  """Runs the computations of the request in a folder."""
  with open(os.path.join(folder, 'request.json')) as file:
    request = json.load(file)
  arrays = dict(np.load(os.path.join(folder, 'request.npz')))
  original = load_original(request['sonnet_path'])

  results = {}
  for computation in request['computations']:
    prefix = computation['name'] + '/'
    run, given = KINDS[computation['kind']], below(prefix, arrays)
    try:
      with original.tf.Graph().as_default():
        result = run(original, computation['settings'], given)
    except Exception:
      sys.stderr.write(f'In computation {computation}\n')
      raise
    results.update((prefix + key, value) for key, value in result.items())

  np.savez(os.path.join(folder, 'response.npz'), **results)
  with open(os.path.join(folder, 'response.json'), 'w') as file:
    json.dump(original.about, file)


# ---------------------------------------------------------------------- kinds
# Each takes (original, settings, arrays) and returns arrays.


def run_linear(original, settings, given):
  """y = x w + b, on the rows of `inputs` [R, in]."""
  return _apply(original, original.Linear(settings['size']), given)


def run_layer_norm(original, settings, given):
  """Layer norm over the last axis of `inputs` [R, features]."""
  del settings
  return _apply(original, original.LayerNorm(), given)


def run_unroll(original, settings, given):
  """T steps with carried state, and gradients where cotangents are given.

  `inputs` [T, B, ...] and `state` [B, N, D] give `outputs` [T, B, N*D], the
  final `state`, the `attention` weights [T, B, L, H, N, N+I] of the L blocks
  and, for gated cores, `input_gate` and `forget_gate` [T, B, N, G].
  With `cotangents/outputs` and `cotangents/state` also the gradients of
  sum(outputs * c_outputs) + sum(state * c_state) with respect to every
  variable, the inputs and the initial state. Weights are the arrays
  `weights/...`, or in the checkpoint that the settings name.
  """
  tf = original.tf
  core = _core(original, settings)
  inputs, initial = (
    tf.placeholder(given[name].dtype, given[name].shape)
    for name in ('inputs', 'state')
  )
  fetches = _steps(original, core, inputs, initial, settings)
  fetches['attention'] = _attention(original, inputs.graph, initial, settings)
  cotangents = below('cotangents/', given)
  if cotangents:
    loss = tf.add_n(
      [tf.reduce_sum(fetches[name] * c) for name, c in cotangents.items()]
    )
    sources = {'weights/' + v.op.name: v for v in core.get_variables()}
    sources.update(inputs=inputs, state=initial)
    gradients = tf.gradients(loss, list(sources.values()))
    fetches.update(zip(map('gradients/{}'.format, sources), gradients))

  with _session(original) as session:
    if 'checkpoint' in settings:
      saver = tf.train.Saver(core.get_variables())
      saver.restore(session, settings['checkpoint'])
    else:
      _load_weights(original, session, given)
    feed = {inputs: given['inputs'], initial: given['state']}
    return session.run(fetches, feed)


def run_train(original, settings, given):
  """Adam on the mean squared error, one update for each batch given.

  `inputs` [S, T, B, ...], `targets` [S, T, B, N*D] and `state` [B, N, D] give
  the `losses` [S] before each update and the final `weights/...`. If the
  settings name a `checkpoint`, all variables, Adam's slots included, are saved
  there.
  """
  tf = original.tf
  core = _core(original, settings)
  inputs = tf.placeholder(given['inputs'].dtype, given['inputs'].shape[1:])
  targets = tf.placeholder(given['targets'].dtype, given['targets'].shape[1:])
  initial = tf.constant(given['state'])
  outputs = _steps(original, core, inputs, initial, settings)['outputs']
  loss = tf.reduce_mean(tf.square(outputs - targets))
  step = tf.train.get_or_create_global_step()
  optimizer = tf.train.AdamOptimizer(
    settings['learning_rate'], epsilon=settings['epsilon']
  )
  update = optimizer.minimize(loss, global_step=step)

  with _session(original) as session:
    session.run(tf.global_variables_initializer())
    _load_weights(original, session, given)
    losses = []
    for batch, target in zip(given['inputs'], given['targets']):
      feed = {inputs: batch, targets: target}
      losses.append(session.run([loss, update], feed)[0])
    if 'checkpoint' in settings:
      tf.train.Saver().save(session, settings['checkpoint'])
    result = session.run(
      {'weights/' + v.op.name: v for v in core.get_variables()}
    )
  return dict(result, losses=np.array(losses))


def run_create(original, settings, given):
  """A new core: its initial `state` [B, N, D] and the `spreads` of its weights.

  Only the `refusal` if it does not accept its arguments.
  """
  tf = original.tf
  tf.set_random_seed(settings['seed'])
  try:
    core = _core(original, settings)
  except (TypeError, ValueError) as error:
    return refusal(error)
  inputs, state = tf.constant(given['inputs']), tf.constant(given['state'])
  _steps(original, core, inputs, state, settings)
  weights = {v.op.name: v for v in core.get_variables()}
  initial = core.initial_state(len(given['state']))
  with _session(original) as session:
    session.run(tf.global_variables_initializer())
    weights, initial = session.run((weights, initial))
  return dict(spreads(weights), state=initial)


def spreads(weights):
  """Spread and largest entry of each weight, named with its place and shape.

  Those of matrices are in units of 1/sqrt(inputs).
  """
  results = {}
  for index, (name, weight) in enumerate(weights.items()):
    unit = weight.shape[0] ** -0.5 if weight.ndim == 2 else 1.0
    label = f'weights/{index} {name} {weight.shape}'
    results[label + ' spread'] = weight.std() / unit
    results[label + ' largest'] = abs(weight).max() / unit
  return results


def refusal(error):
  """The result of a core that refuses its arguments, named by the error."""
  return {'refused with ' + type(error).__name__: np.array(1.0)}


def run_nth_farthest(original, settings, given):
  """The authors' dataset, on given numbers in place of random ones.

  `vectors` [B, O, features], the `order` [B, O] in which they are shown, `n`
  and `m` [B] give `inputs` [B, O, features + 3 * O] and `labels` [B].
  """
  del original
  module = importlib.import_module('sonnet.examples.dataset_nth_farthest')
  dataset = module.NthFarthest(None, None, None)
  module.np = types.SimpleNamespace(**vars(np))
  order, n, m = (given[name].astype(int) for name in ('order', 'n', 'm'))
  sets = []
  for numbers in zip(given['vectors'], order, n, m):
    module.np.random = _Numbers(*numbers)
    sets.append(
      dataset._get_single_set(settings['num_objects'], settings['num_features'])
    )
  inputs, labels = zip(*sets)
  return {'inputs': np.stack(inputs), 'labels': np.concatenate(labels)}


class _Numbers:
  """Replaces numpy.random for one example of the dataset."""

  def __init__(self, vectors, order, n, m):
    self._vectors, self._order = vectors, order
    self._integers = iter([n, m])  # the dataset draws them in this order

  def uniform(self, low, high, size):
    assert (low, high, size) == (-1, 1, self._vectors.shape)
    return self._vectors

  def randint(self, low, high):
    assert (low, high) == (0, len(self._order))
    return next(self._integers)

  def permutation(self, rows):
    return rows[self._order]


def run_read_checkpoint(original, settings, given):
  """Every variable of a TensorFlow 1 checkpoint, by name."""
  del given
  tf = original.tf
  path = settings['checkpoint']
  if os.path.isdir(path):
    path = tf.train.latest_checkpoint(path)
    if path is None:
      raise ValueError('No checkpoint in the folder ' + settings['checkpoint'])
  reader = tf.train.NewCheckpointReader(path)
  names = sorted(reader.get_variable_to_shape_map())
  return {name: reader.get_tensor(name) for name in names}


def run_write_checkpoint(original, settings, given):
  """Saves the given arrays under their names as a TensorFlow 1 checkpoint."""
  tf = original.tf
  for name, value in given.items():
    tf.get_variable(name, initializer=tf.constant(value))
  with _session(original) as session:
    session.run(tf.global_variables_initializer())
    # A meta graph would describe these variables alone, not a model.
    tf.train.Saver().save(
      session, settings['checkpoint'], write_meta_graph=False
    )
  return {}


KINDS = {
  'linear': run_linear,
  'layer_norm': run_layer_norm,
  'unroll': run_unroll,
  'train': run_train,
  'create': run_create,
  'nth_farthest': run_nth_farthest,
  'read_checkpoint': run_read_checkpoint,
  'write_checkpoint': run_write_checkpoint,
}


def _apply(original, module, given):
  """Runs a module of one input; returns its `outputs`."""
  tf = original.tf
  inputs = tf.placeholder(given['inputs'].dtype, given['inputs'].shape)
  outputs = module(inputs)
  with _session(original) as session:
    _load_weights(original, session, given)
    return {'outputs': session.run(outputs, {inputs: given['inputs']})}


def _core(original, settings):
  with original.tf.variable_scope(settings.get('scope') or ''):
    return original.RelationalMemory(**settings['arguments'])


def _steps(original, core, inputs, state, settings):
  """Calls the core on inputs[0], inputs[1], ...; stacks outputs and gates."""
  tf = original.tf
  stacks = collections.defaultdict(list)
  for x in tf.unstack(inputs):
    output, state = core(
      x, state, treat_input_as_matrix=settings['treat_input_as_matrix']
    )
    stacks['outputs'].append(output)
    if settings['arguments'].get('gate_style', 'unit'):
      stacks['input_gate'].append(core.input_gate)
      stacks['forget_gate'].append(core.forget_gate)
  return dict({k: tf.stack(v) for k, v in stacks.items()}, state=state)


def _attention(original, graph, state, settings):
  """Finds the attention weights, which the core does not return."""
  tf = original.tf
  found = [
    op.outputs[0] for op in graph.get_operations() if op.type == 'Softmax'
  ]
  num_blocks = settings['arguments'].get('num_blocks', 1)
  steps = [
    # Blocks get an axis of their own; of the queries, only slots are kept.
    tf.stack(found[i : i + num_blocks], axis=1)[..., : state.shape[1], :]
    for i in range(0, len(found), num_blocks)
  ]
  return tf.stack(steps)


def _load_weights(original, session, given):
  """Sets every variable of the model from `weights/...`."""
  tf = original.tf
  weights = below('weights/', given)
  variables = {v.op.name: v for v in tf.trainable_variables()}
  if set(weights) != set(variables):
    raise ValueError(
      f'Weights must be given for {sorted(variables)}. Got: {sorted(weights)}.'
    )
  for name, variable in variables.items():
    shape = variable.shape.as_list()
    if shape != list(weights[name].shape):
      raise ValueError(
        f'{name} has shape {shape}, but its given weight has '
        f'{weights[name].shape}.'
      )
  # All at once, in place of the values that the initialisers would draw.
  session.run(
    tf.variables_initializer(list(variables.values())),
    {v.initial_value: weights[name] for name, v in variables.items()},
  )


def _session(original):
  # One thread sums in a fixed order and leaves cores to other programs.
  return original.tf.Session(
    config=original.tf.ConfigProto(
      intra_op_parallelism_threads=1, inter_op_parallelism_threads=1
    )
  )


def below(prefix, arrays):
  """The arrays whose names start with `prefix`, under the rest of the names."""
  return {
    name[len(prefix) :]: value
    for name, value in arrays.items()
    if name.startswith(prefix)
  }


# --------------------------------------------------------- the authors' code


def load_original(sonnet_path):
  """Imports TensorFlow and the authors' modules, with their versions.

  `sonnet_path` is a folder with a dm-sonnet to use in place of the installed
  one, or None.
  """
  if sonnet_path:
    sys.path.insert(0, sonnet_path)
  # TensorFlow logs a lot, and the protos of dm-sonnet are older than the C++
  # parser of TensorFlow 2.
  os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
  if sys.version_info >= (3, 8):
    os.environ.setdefault('PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION', 'python')
  import tensorflow

  shimmed = int(tensorflow.__version__.split('.')[0]) >= 2
  if shimmed:
    _shim_tensorflow_2()
  tf = importlib.import_module('tensorflow.compat.v1')
  tf.logging.set_verbosity(tf.logging.ERROR)

  from sonnet.python.modules import basic
  from sonnet.python.modules import layer_norm
  from sonnet.python.modules import relational_memory

  return types.SimpleNamespace(
    tf=tf,
    Linear=basic.Linear,
    LayerNorm=layer_norm.LayerNorm,
    RelationalMemory=relational_memory.RelationalMemory,
    about={
      'python': '.'.join(map(str, sys.version_info[:3])),
      'tensorflow': tensorflow.__version__,
      'sonnet': _sonnet_version(relational_memory.__file__),
      'shimmed': shimmed,
    },
  )


def _sonnet_version(module_file):
  """The version in the metadata folder beside the imported package."""
  inside = os.sep + 'sonnet' + os.sep
  package = os.path.dirname(module_file).rsplit(inside, 1)[0]
  for name in os.listdir(package):
    if name.startswith('dm_sonnet-') and name.endswith('.dist-info'):
      return name[len('dm_sonnet-') : -len('.dist-info')]
  raise RuntimeError('No dm_sonnet-*.dist-info beside sonnet in ' + package)


def _shim_tensorflow_2():
  """Adds the names of 2019 that dm-sonnet 1 imports; no arithmetic."""
  import tensorflow.compat.v1 as tf
  from tensorflow.python.framework import smart_cond
  from tensorflow.python.util import nest

  tf.disable_v2_behavior()

  # Names that newer Pythons removed.
  for name in ('Iterable', 'Mapping', 'Sequence', 'Callable'):
    if not hasattr(collections, name):
      setattr(collections, name, getattr(collections.abc, name))
  if not hasattr(inspect, 'getargspec'):
    spec = collections.namedtuple('ArgSpec', 'args varargs keywords defaults')
    inspect.getargspec = lambda function: spec(
      *inspect.getfullargspec(function)[:4]
    )

  # tf.contrib is gone; the modules use these parts of it.
  _stub(
    'tensorflow.contrib.framework',
    nest=nest,
    smart_cond=smart_cond.smart_cond,
  )
  _stub('tensorflow.contrib.eager.python.tfe', defun=tf.function)
  _stub('tensorflow.contrib.rnn')

  # The packages' own __init__ files import all of Sonnet, which needs
  # tensorflow_probability; empty ones let single modules be imported.
  roots = [os.path.join(folder, 'sonnet') for folder in sys.path]
  root = next(root for root in roots if os.path.isdir(root))
  for name in (
    'sonnet',
    'sonnet.python',
    'sonnet.python.modules',
    'sonnet.python.modules.nets',
  ):
    _stub(name).__path__ = [os.path.join(root, *name.split('.')[1:])]

  # dm-sonnet before 1.27 says `import tensorflow as tf` and means TF 1.
  tf.contrib = sys.modules['tensorflow.contrib']
  sys.modules['tensorflow'] = tf


def _stub(dotted, **names):
  """Registers an empty module and its parents in sys.modules."""
  parts = dotted.split('.')
  for depth in range(2, len(parts)):
    parent = '.'.join(parts[:depth])
    if parent not in sys.modules:
      _stub(parent)
  module = types.ModuleType(dotted)
  module.__path__ = []
  module.__dict__.update(names)
  sys.modules[dotted] = module
  if len(parts) > 1:
    setattr(sys.modules['.'.join(parts[:-1])], parts[-1], module)
  return module


if __name__ == '__main__':
  main(sys.argv[1])
