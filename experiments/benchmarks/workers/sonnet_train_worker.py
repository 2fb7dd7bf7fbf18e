"""Runs the authors' script of Nth Farthest, `rmc_nth_farthest`, step by step.

The script of the dm-sonnet of launch/parity.sh runs unchanged, on its own
dataset, in its own loop and session, except for two things. Heads, blocks and
the widths of the read-out are set from outside: as shipped it uses the number
of memories for the first two and 256 for the last. And its loop waits before
each iteration. Its report, every `log_stride` updates, comes once at the start.
A step is `updates_per_call` iterations.
"""
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false
# The rest of the project is Python 3.11; this file must stay valid 3.7.

import importlib
import threading
import types

import numpy as np

from experiments.benchmarks.workers import serve
from experiments.benchmarks.workers import sonnet_worker


class Script(serve.Implementation):
  """The script in a thread of its own, paused before every iteration."""

  def __init__(self, request, arrays):
    del arrays  # The script makes its own data and weights.
    original = sonnet_worker.load_original()
    if original.about['shimmed']:
      raise RuntimeError(
        "The authors' script needs TensorFlow 1.15, so Python 3.7; this is "
        'TensorFlow {tensorflow} on Python {python}. Install a Python 3.7 and '
        'run launch/parity.sh --setup-only again.'.format(**original.about)
      )
    self._tf = original.tf
    self._script = importlib.import_module('sonnet.examples.rmc_nth_farthest')
    preset = request['preset']
    self._updates = preset['run']['updates_per_call']
    items = self._updates * preset['batch_size']
    self._facts = {'items': items, 'batches': self._updates}
    self._resume, self._paused = threading.Semaphore(0), threading.Semaphore(0)
    self._error = None
    self._parameters = 0
    self._adapt(preset)
    threading.Thread(target=self._run, daemon=True).start()
    self._paused.acquire()  # The graph is built, or building it failed.
    self._raise_error()
    self.about = dict(original.about, platform='cpu')

  def build(self, step):
    """See base class."""
    del step
    return self._step, self._facts

  def results(self):
    """See base class."""
    return {'parameters': np.array(self._parameters)}

  def _step(self):
    for _ in range(self._updates):
      self._resume.release()
      self._paused.acquire()
      self._raise_error()

  def _run(self):
    try:
      # An infinite stride: nothing is reported after the first iteration.
      self._script.build_and_train(iterations=None, log_stride=float('inf'))
    except BaseException as error:
      self._error = error
      self._paused.release()

  def _raise_error(self):
    if self._error is not None:
      raise RuntimeError('The script ended.') from self._error

  def _iterations(self, iterations):
    """Replaces range(iterations) in the script."""
    del iterations
    self._parameters = sum(
      variable.shape.num_elements()
      for variable in self._tf.trainable_variables()
    )
    iteration = 0
    while True:
      self._paused.release()
      self._resume.acquire()
      yield iteration
      iteration += 1

  def _adapt(self, preset):
    """Sets the flags of the script, its model and the pace of its loop."""
    script, core = self._script, preset['core']
    optimizer = preset['optimizer']
    flags = {
      'batch_size': preset['batch_size'],
      'num_objects': preset['num_objects'],
      'num_features': preset['num_features'],
      'num_mems': core['mem_slots'],
      'head_size': core['head_size'],
      'learning_rate': optimizer['learning_rate'],
      'min_learning_rate': optimizer['floor'],
      # The script decays the rate by a tenth every hundredth of its epochs.
      'epochs': 100 * optimizer['decay_every'],
    }
    script.FLAGS(
      [script.__name__] + [f'--{name}={value}' for name, value in flags.items()]
    )
    sonnet = script.snt

    def relational_memory(num_heads, num_blocks, **arguments):
      del num_heads, num_blocks
      return sonnet.RelationalMemory(
        num_heads=core['num_heads'], num_blocks=1, **arguments
      )

    def read_out(output_sizes, **arguments):
      del output_sizes
      return sonnet.nets.MLP(preset['hidden_sizes'], **arguments)

    script.snt = types.SimpleNamespace(**vars(sonnet))
    script.snt.RelationalMemory = relational_memory
    script.snt.nets = types.SimpleNamespace(MLP=read_out)
    script.six = types.SimpleNamespace(
      moves=types.SimpleNamespace(range=self._iterations)
    )


if __name__ == '__main__':
  serve.serve(Script)
