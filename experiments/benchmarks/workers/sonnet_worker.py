"""The original as a contestant: the authors' Sonnet module on TensorFlow.

Runs in the environment of launch/parity.sh and imports nothing of rmc_jax but,
by its path, the file that finds the authors' code there. Inputs are variables:
neither copied at each step nor constants. Results are fetched, which copies
nothing; those of a tf.group TensorFlow would not compute at all.
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


class SonnetContestant(serve.Contestant):
  """A graph with the unroll, its loss and the gradients of all weights."""

  def __init__(self, request, arrays):
    original = load_original()
    self._tf = tf = original.tf
    core = original.RelationalMemory(**request['arguments'])
    inputs, state = (
      tf.get_variable(name, initializer=arrays[name], trainable=False)
      for name in ('inputs', 'state')
    )
    unroll = {'loop': _loop, 'steps': _steps}[request['variant'] or 'steps']
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

  def build(self, what):
    """See base class."""
    tf = self._tf
    if what == 'train':
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
  """T calls of the core, one after the other in the graph."""
  outputs = []
  for x in tf.unstack(inputs):
    output, state = core(x, state)
    outputs.append(output)
  return tf.stack(outputs)


def _loop(tf, core, inputs, state):
  """tf.while_loop, as tf.nn.dynamic_rnn of the authors' example makes it."""
  num_steps = inputs.shape[0].value
  given = tf.TensorArray(inputs.dtype, num_steps).unstack(inputs)
  made = tf.TensorArray(inputs.dtype, num_steps)
  # The original makes its variables at its first call: not inside the loop.
  core(given.read(0), state)

  def body(t, made, state):
    output, state = core(given.read(t), state)
    return t + 1, made.write(t, output), state

  _, made, _ = tf.while_loop(
    lambda t, *_: t < num_steps,
    body,
    (tf.constant(0), made, tf.identity(state)),
    parallel_iterations=32,
  )
  outputs = made.stack()
  outputs.set_shape([num_steps, inputs.shape[1], None])
  return outputs


def load_original():
  """TensorFlow and the authors' modules, as reference_runner.py loads them."""
  spec = importlib.util.spec_from_file_location('reference_runner', _RUNNER)
  assert spec is not None
  assert spec.loader is not None
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  return module.load_original(None)


if __name__ == '__main__':
  serve.serve(SonnetContestant)
