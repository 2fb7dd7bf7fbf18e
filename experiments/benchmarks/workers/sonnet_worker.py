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


class Unroll(serve.Implementation):
  """A graph of the unroll, its loss and the gradients of all weights."""

  def __init__(self, request, arrays):
    original = load_original()
    self._tf = tf = original.tf
    core = original.RelationalMemory(**request['arguments'])
    inputs, state = (
      tf.get_variable(name, initializer=arrays[name], trainable=False)
      for name in ('inputs', 'state')
    )
    unroll = {'loop': _loop, 'steps': _steps}[request['variant']]
    self._outputs = unroll(tf, core, inputs, state)
    self._weights = {v.op.name: v for v in core.get_variables()}
    self._fetched = {}
    threads = request['cores']
    self._session = tf.Session(
      config=tf.ConfigProto(
        intra_op_parallelism_threads=threads,
        inter_op_parallelism_threads=threads,
      )
    )
    self._session.run(
      tf.global_variables_initializer(),
      {
        variable.initial_value: arrays['weights/' + name]
        for name, variable in self._weights.items()
      },
    )
    self.about = dict(original.about, platform='cpu')

  def build(self, step):
    """See base class."""
    tf = self._tf
    if step == 'train':
      loss = tf.reduce_mean(tf.square(self._outputs))
      gradients = tf.gradients(loss, list(self._weights.values()))
      fetched = {'gradients/' + n: g for n, g in zip(self._weights, gradients)}
      fetched['loss'] = loss
    else:
      fetched = {'outputs': self._outputs}
    self._fetched.update(fetched)
    return self._session.make_callable(list(fetched.values())), {}

  def results(self):
    """See base class."""
    return self._session.run(self._fetched)


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
  serve.serve(Unroll)
