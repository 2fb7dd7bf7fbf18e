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
import itertools
import threading
import types

import numpy as np

from experiments.benchmarks.workers import serve
from experiments.benchmarks.workers import sonnet_worker


def load(request, arrays):
  """Starts the script in a thread that pauses before every iteration."""
  del arrays  # The script makes its own data and weights.
  original = sonnet_worker.load_original()
  if original.about['shimmed']:
    raise RuntimeError(
      "The authors' script needs TensorFlow 1.15, so Python 3.7; this is "
      'TensorFlow {tensorflow} on Python {python}. Install a Python 3.7 and '
      'run launch/parity.sh --setup-only again.'.format(**original.about)
    )
  script = importlib.import_module('sonnet.examples.rmc_nth_farthest')
  resume, paused = threading.Semaphore(0), threading.Semaphore(0)
  parameters, errors = [], []

  def iterations(_):
    # In the thread of the script, whose graph is complete now.
    variables = original.tf.trainable_variables()
    parameters.append(sum(v.shape.num_elements() for v in variables))
    for iteration in itertools.count():
      paused.release()
      resume.acquire()
      yield iteration

  def run():
    try:
      # An infinite stride: nothing is reported after the first iteration.
      script.build_and_train(iterations=None, log_stride=float('inf'))
    except BaseException as error:
      errors.append(error)
      paused.release()

  def wait():
    paused.acquire()
    if errors:
      raise RuntimeError('The script ended.') from errors[0]

  preset = request['preset']
  updates = preset['run']['updates_per_call']

  def step():
    for _ in range(updates):
      resume.release()
      wait()

  adapt(script, preset, iterations)
  threading.Thread(target=run, daemon=True).start()
  wait()
  facts = {'items': updates * preset['batch_size'], 'batches': updates}
  return serve.Implementation(
    dict(original.about, platform='cpu'),
    lambda _: (step, facts),
    lambda: {'parameters': np.array(parameters[0])},
  )


def adapt(script, preset, iterations):
  """Sets the flags of the script and its model; replaces its range()."""
  core, optimizer = preset['core'], preset['optimizer']
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
    moves=types.SimpleNamespace(range=iterations)
  )


if __name__ == '__main__':
  serve.serve(load)
