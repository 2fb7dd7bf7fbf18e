"""The authors' script of Nth Farthest, `rmc_nth_farthest`, update by update.

It runs as it is in the dm-sonnet of launch/parity.sh, on its own dataset, in
its own loop and session, with two things given to it from outside: the numbers
of heads and blocks and the widths of the read-out, where the script as shipped
takes the number of memories for both and has 256; and the pace of its loop. Its
reports, every `log_stride` updates, come once at the start. A step is
`updates_per_call` of its iterations.
"""
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false
# The rest of the project is Python 3.11; this file must stay valid 3.7.

import importlib
import threading
import types

from experiments.benchmarks.workers import serve
from experiments.benchmarks.workers import sonnet_worker


class Script(serve.Contestant):
  """The script in a thread of its own, held before every iteration."""

  def __init__(self, request, arrays):
    del arrays  # It makes its own data and weights.
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
    self._updates = preset['updates_per_call']
    self._turn, self._done = threading.Semaphore(0), threading.Semaphore(0)
    self._error = None
    self._adapt(preset)
    threading.Thread(target=self._run, daemon=True).start()
    self._done.acquire()  # Its graph is built, or building it failed.
    self._raise_error()
    self.about = dict(original.about, platform='cpu', parameters=self._size)

  def build(self, what):
    """See base class."""
    del what
    return self._step, {}

  def _step(self):
    for _ in range(self._updates):
      self._turn.release()
      self._done.acquire()
      self._raise_error()

  def _run(self):
    try:
      # Nothing is reported beyond the first iteration.
      self._script.build_and_train(iterations=None, log_stride=float('inf'))
    except BaseException as error:
      self._error = error
      self._done.release()

  def _raise_error(self):
    if self._error is not None:
      raise RuntimeError('The script ended.') from self._error

  def _iterations(self, iterations):
    """Stands where the script has range(iterations)."""
    del iterations
    self._size = sum(
      variable.shape.num_elements()
      for variable in self._tf.trainable_variables()
    )
    iteration = 0
    while True:
      self._done.release()
      self._turn.acquire()
      yield iteration
      iteration += 1

  def _adapt(self, preset):
    """Gives the script its flags, the right model, and our pace."""
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
      # The script has the rate fall by a tenth in a hundredth of its epochs.
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
