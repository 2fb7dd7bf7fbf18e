"""Unrolls the original, the authors' Sonnet module on TensorFlow.

Runs in the environment of launch/parity.sh and imports nothing of rmc_jax
except, by its path, the file that loads the authors' code there. Inputs are
variables, so they are neither copied in each step nor folded as constants.
Results are fetched, which copies nothing; TensorFlow would prune a tf.group.
"""
# pyright: reportMissingImports=false
# The rest of the project is Python 3.11; this file must stay valid 3.7.

import importlib.util
import os

from experiments.benchmarks.workers import serve

_RUNNER = os.path.join(
  os.path.dirname(os.path.abspath(__file__)),
  '../../../rmc_jax/parity/reference_runner.py',
)


def load(request, arrays):
  """Loads a graph of the unroll, its loss and the gradients of all weights."""
  original = load_original()
  tf = original.tf
  core = original.RelationalMemory(**request['arguments'])
  inputs, state = (
    tf.get_variable(name, initializer=arrays[name], trainable=False)
    for name in ('inputs', 'state')
  )
  unroll = {'loop': _loop, 'steps': _steps}[request['variant']]
  outputs = unroll(tf, core, inputs, state)
  weights = {variable.op.name: variable for variable in core.get_variables()}
  threads = {
    f'{kind}_op_parallelism_threads': request['cores']
    for kind in ('intra', 'inter')
  }
  session = tf.Session(config=tf.ConfigProto(**threads))
  session.run(
    tf.global_variables_initializer(),
    {v.initial_value: arrays['weights/' + name] for name, v in weights.items()},
  )
  fetched = {}

  def build(step):
    if step == 'forward':
      new = {'outputs': outputs}
    else:
      new = {'loss': tf.reduce_mean(tf.square(outputs))}
      gradients = tf.gradients(new['loss'], list(weights.values()))
      new.update(zip(('gradients/' + name for name in weights), gradients))
    fetched.update(new)
    return session.make_callable(list(new.values())), {}

  return serve.Implementation(
    dict(original.about, platform='cpu'), build, lambda: session.run(fetched)
  )


def _steps(tf, core, inputs, state):
  """Calls the core T times, in a static graph."""
  outputs = []
  for x in tf.unstack(inputs):
    output, state = core(x, state)
    outputs.append(output)
  return tf.stack(outputs)


def _loop(tf, core, inputs, state):
  """Uses tf.while_loop, as tf.nn.dynamic_rnn of the authors' example does."""
  num_steps = inputs.shape[0].value
  inputs_array = tf.TensorArray(inputs.dtype, num_steps).unstack(inputs)
  outputs_array = tf.TensorArray(inputs.dtype, num_steps)
  # The first call creates the variables; it must be outside the loop.
  core(inputs_array.read(0), state)

  def body(t, outputs_array, state):
    output, state = core(inputs_array.read(t), state)
    return t + 1, outputs_array.write(t, output), state

  _, outputs_array, _ = tf.while_loop(
    lambda t, *_: t < num_steps,
    body,
    (tf.constant(0), outputs_array, tf.identity(state)),
    parallel_iterations=32,
  )
  outputs = outputs_array.stack()
  outputs.set_shape([num_steps, inputs.shape[1], None])
  return outputs


def load_original():
  """Loads TensorFlow and the authors' modules with reference_runner.py."""
  spec = importlib.util.spec_from_file_location('reference_runner', _RUNNER)
  assert spec is not None
  assert spec.loader is not None
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  return module.load_original(None)


if __name__ == '__main__':
  serve.serve(load)
