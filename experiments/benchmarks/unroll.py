"""Times an unroll beside the original, its ports and LSTMs.

  launch/benchmark.sh unroll --sizes=nth_farthest --output=results.json

Measures a training step (the mean of the squared outputs, and its gradient with
respect to every parameter) and the forward pass alone. All contestants get the
same weights, inputs and cores, and those that are relational memories must give
the same outputs, loss and gradients before they are timed. `ratio` is a
contestant's time by that of the first, in each round: above 1 the first is
faster.
"""

import dataclasses
import json
import os
import pathlib
import sys
import tempfile
from typing import Any

from absl import app
from absl import flags
import numpy as np
from rich.console import Console
from rich.table import Table

from experiments.benchmarks import contest
from experiments.benchmarks import machine
from experiments.benchmarks.contestants import command
from experiments.benchmarks.contestants import CONTESTANTS
from experiments.benchmarks.contestants import environment
from experiments.benchmarks.contestants import obstacle
from experiments.benchmarks.sizes import Size
from experiments.benchmarks.sizes import SIZES
from rmc_jax.parity import convert
from rmc_jax.parity import names

WHATS = ('train', 'forward')
_WIDTH = 140  # of the table, also where it is no terminal that it goes to

# Largest difference allowed, as a fraction of the largest entry of the outputs,
# of the loss or of the gradients. Roundings of one number (6e-8, 5e-4, 4e-3)
# grow up to a hundredfold over the steps of an unroll. A layer norm over the
# wrong axis, a bias left out or another scale of the queries changes a tenth.
TOLERANCE = {'float32': 1e-4, 'tf32': 2e-2, 'bfloat16': 5e-2}

FLAGS = flags.FLAGS
flags.DEFINE_list('sizes', ['nth_farthest'], f'Of {", ".join(SIZES)}; or all.')
flags.DEFINE_list(
  'contestants',
  [name for name in CONTESTANTS if name != 'rmc_jax_remat'],
  f'Of {", ".join(CONTESTANTS)}.',
)
flags.DEFINE_integer('rounds', 5, 'Turns of each contestant.', lower_bound=1)
flags.DEFINE_integer('batch', None, 'Instead of the batch of the size.')
flags.DEFINE_enum('precision', 'float32', list(TOLERANCE), 'Of the products.')
flags.DEFINE_enum('device', None, ['cpu', 'gpu'], 'Default: what is there.')
flags.DEFINE_bool('remat', False, 'Let rmc_jax_remat take part as well.')
flags.DEFINE_float('turn_seconds', 1.0, 'How long a turn should be.')
flags.DEFINE_float(
  'limit', 300.0, 'Seconds after which a build, or a turn, counts as hung.'
)
flags.DEFINE_string('output', None, 'Where to write everything, as JSON.')


def main(argv: list[str]) -> None:
  """Measures size after size; prints a table for each as it is done."""
  del argv
  device = FLAGS.device or ('gpu' if machine.gpu() else 'cpu')
  contestants = list(FLAGS.contestants)
  if FLAGS.remat:
    contestants.append('rmc_jax_remat')
  chosen = list(SIZES) if FLAGS.sizes == ['all'] else FLAGS.sizes
  for kind, given, known in [
    ('size', chosen, SIZES),
    ('contestant', contestants, CONTESTANTS),
  ]:
    for name in given:
      if name not in known:
        raise app.UsageError(
          f'There is no {kind} {name!r}; expected some of {", ".join(known)}.'
        )
  results = {
    **machine.describe('experiments.benchmarks.unroll', sys.argv[1:]),
    'device': device,
    'precision': FLAGS.precision,
    'sizes': {},
  }
  console = Console(width=_WIDTH)
  for name in chosen:
    size = SIZES[name]
    batch = FLAGS.batch or (device == 'gpu' and size.gpu_batch) or size.batch
    size = dataclasses.replace(size, batch=batch)
    measured = measure(size, contestants, device)
    results['sizes'][name] = measured
    console.print(table(name, measured))
    if FLAGS.output:
      pathlib.Path(FLAGS.output).write_text(json.dumps(results, indent=1))


def measure(size: Size, contestants: list[str], device: str) -> dict[str, Any]:
  """Builds, compares and times the contestants on one size."""
  entries: dict[str, dict[str, Any]] = {}
  workers: dict[str, contest.Worker] = {}
  with tempfile.TemporaryDirectory() as folder:
    try:
      expected = None
      for name in contestants:
        entry = entries[name] = {}
        reason = obstacle(name, device, FLAGS.precision)
        if reason:
          entry['left_out'] = reason
          continue
        _say(f'{name} is building')
        try:
          workers[name] = _ready(name, size, device, folder, entry)
          found = _results(name, workers[name], folder)
        except contest.Failed as failed:
          entry['left_out'] = str(failed)
          continue
        if not CONTESTANTS[name].compared:
          continue
        if expected is None:
          expected = found
        entry['difference'] = difference(found, expected)
        worst = max(entry['difference'].values())
        # Written so that a NaN is refused, too.
        if not worst <= TOLERANCE[FLAGS.precision]:
          entry['left_out'] = (
            f'refused: differs by {worst:.1e}, more than '
            f'{TOLERANCE[FLAGS.precision]:.0e}'
          )
          workers.pop(name).stop()
      _say('rounds')
      idle = _play(workers, entries)
    finally:
      for worker in workers.values():
        worker.stop()
  return {
    'size': dataclasses.asdict(size),
    'contestants': entries,
    'idle_share': idle,
  }


def _play(workers, entries):
  """Fills in `seconds`; returns the largest idle share."""
  idle = 0.0
  for what in WHATS:
    played = contest.play(
      workers,
      what,
      rounds=FLAGS.rounds,
      turn_seconds=FLAGS.turn_seconds,
      limit=FLAGS.limit,
    )
    idle = max(idle, played.idle_share)
    for name, seconds in played.seconds.items():
      entries[name].setdefault('seconds', {})[what] = seconds
    for name, reason in played.failures.items():
      entries[name]['left_out'] = reason
      workers.pop(name)
  return idle


def _ready(name, size, device, folder, entry) -> contest.Worker:
  """A worker of the contestant's fastest variant, with everything built."""
  contestant = CONTESTANTS[name]
  variants = contestant.variants
  if device == 'gpu':
    variants += contestant.gpu_variants
  best, best_seconds, reasons = None, float('inf'), []
  arrays = _arrays(contestant.worker, size, folder)
  entry['tried'] = {}
  for variant in variants:
    worker = contest.Worker(
      command(name),
      environment(device, folder),
      machine.CHECKOUT,
    )
    try:
      about = worker.ask(
        FLAGS.limit,
        ask='load',
        contestant=name,
        variant=variant,
        arguments=size.arguments(),
        arrays=arrays,
        cores=machine.cores(),
        device=device,
        precision=FLAGS.precision,
      )['about']
      built = worker.ask(FLAGS.limit, ask='build', what='train')
      memory = worker.ask(FLAGS.limit, ask='memory', what='train', steps=2)
      run = worker.ask(FLAGS.limit, ask='run', what='train', steps=2)
    except contest.Failed as failed:
      reasons.append(f'{variant}: {failed}' if variant else str(failed))
      entry['tried'][variant] = str(failed)
      continue
    seconds = min(run['seconds'])
    entry['tried'][variant] = seconds
    if seconds >= best_seconds:
      worker.stop()
      continue
    if best:
      best.stop()
    best, best_seconds = worker, seconds
    entry['variant'] = variant
    entry['about'] = about
    entry['build'] = {'train': built}
    entry['memory_bytes'] = memory['bytes']
  if best is None:
    raise contest.Failed('; '.join(reasons))
  entry['build']['forward'] = best.ask(FLAGS.limit, ask='build', what='forward')
  return best


def _arrays(worker: str, size: Size, folder: str) -> str:
  """Writes weights, inputs and state by the names that the worker knows."""
  path = os.path.join(folder, f'{worker}.npz')
  if not os.path.exists(path):
    arrays = make_arrays(size)
    weights = arrays.pop('weights')
    if worker != 'sonnet':
      weights = {
        f'{module}/{leaf}': value
        for module, leaves in convert.from_sonnet(weights).items()
        for leaf, value in leaves.items()
      }
    arrays |= {f'weights/{name}': value for name, value in weights.items()}
    np.savez(path, **arrays)
  return path


def make_arrays(size: Size, seed: int = 0) -> dict[str, Any]:
  """Inputs, the original's initial state, and weights that all matter.

  Returns:
    `inputs` [T, B, features], `state` [B, N, D] and, by the original's names,
    `weights`; all in float32.
  """
  rng = np.random.default_rng(seed)
  width, keys = size.slot_width, size.key_size or size.head_size
  outputs = {
    'input': width,
    'attention_0/qkv': size.num_heads * (2 * keys + size.head_size),
    'mlp': width,
    'gates': 2 * (width if size.gate_style == 'unit' else 1),
  }
  outputs['attention_0/qkv_norm'] = outputs['attention_0/qkv']
  weights = {}
  structure = names.Structure(1, size.mlp_layers, gated=True)
  for sonnet, haiku in names.name_table(structure):
    module, leaf = haiku.rsplit('/', 1)
    kind = 'gates' if module.endswith('_gates') else module.split('/linear')[0]
    columns = outputs.get(kind, width)
    rows = size.features if module == 'input' else width
    if leaf == 'w':
      value = rng.standard_normal((rows, columns)) * rows**-0.5
    else:
      value = rng.standard_normal(columns) * 0.1 + (leaf == 'scale')
    weights[f'relational_memory/{sonnet}'] = value.astype(np.float32)
  shape = (size.steps, size.batch, size.features)
  state = np.eye(size.mem_slots, width, dtype=np.float32)
  return {
    'inputs': rng.standard_normal(shape, dtype=np.float32),
    'state': np.repeat(state[None], size.batch, axis=0),
    'weights': weights,
  }


def _results(name, worker, folder):
  """What it computes, by our names; nothing for one that is not compared."""
  if not CONTESTANTS[name].compared:
    return {}
  path = os.path.join(folder, 'results.npz')
  worker.ask(FLAGS.limit, ask='check', path=path)
  with np.load(path) as file:
    results = dict(file)
  os.remove(path)
  if CONTESTANTS[name].worker == 'sonnet':
    prefix = 'gradients/'
    gradients = convert.from_sonnet(
      {
        key.removeprefix(prefix): results.pop(key)
        for key in list(results)
        if key.startswith(prefix)
      }
    )
    for module, leaves in gradients.items():
      for leaf, value in leaves.items():
        results[f'{prefix}{module}/{leaf}'] = value
  return results


def difference(
  found: dict[str, np.ndarray], expected: dict[str, np.ndarray]
) -> dict[str, float]:
  """Largest difference by largest entry, of outputs, loss and gradients.

  A gradient is measured by the largest entry of all gradients: small ones are
  sums of large terms that cancel, and no more exact than they are.
  """
  if set(found) != set(expected):
    return {'results': float('inf')}
  worst: dict[str, float] = {}
  for group in ('outputs', 'loss', 'gradients'):
    keys = [key for key in expected if key.split('/')[0] == group]
    scale = max(np.max(np.abs(expected[key])) for key in keys)
    worst[group] = max(
      float(np.max(np.abs(found[key] - expected[key])) / scale)
      if found[key].shape == expected[key].shape
      else float('inf')
      for key in keys
    )
  return worst


def table(name: str, measured: dict[str, Any]) -> Table:
  """One size as a table."""
  size = Size(**measured['size'])
  entries = measured['contestants']
  title = (
    f'{name}: T={size.steps} B={size.batch}, {size.mem_slots} x '
    f'{size.slot_width}, {size.num_heads} heads, {size.mlp_layers} MLP layers, '
    f'{size.gate_style} gates, input {size.features}'
  )
  result = Table(title=title, caption=_caption(measured))
  result.add_column('')
  for column in (
    'train ms', 'ratio', 'forward ms', 'ratio', 'build s', 'memory MB',
    'differs',
  ):  # fmt: skip
    result.add_column(column, justify='right')
  first = next((e for e in entries.values() if 'left_out' not in e), None)
  for contestant, entry in entries.items():
    label = ' '.join(filter(None, [contestant, _version(entry)]))
    if 'left_out' in entry:
      result.add_row(label, entry['left_out'])
      continue
    cells = []
    for what in WHATS:
      seconds = entry['seconds'][what]
      time = contest.step_time(seconds)
      cells.append(_spread(contest.Spread(*(1e3 * s for s in time)), '.1f'))
      ratio = contest.ratio(seconds, first['seconds'][what])
      cells.append('' if entry is first else _spread(ratio, '.2f'))
    cells.append(f'{entry["build"]["train"]["seconds"]:.1f}')
    memory = entry['memory_bytes']
    cells.append('' if memory is None else f'{memory / 1e6:.0f}')
    worst = entry.get('difference')
    cells.append(f'{max(worst.values()):.0e}' if worst else '')
    result.add_row(label, *cells)
  return result


def _version(entry):
  about = entry.get('about', {})
  words = [
    f'{name} {about[name]}'
    for name in ('jax', 'tensorflow', 'torch')
    if name in about
  ]
  if entry.get('variant'):
    words.append(entry['variant'])
  return f'({", ".join(words)})' if words else ''


def _caption(measured):
  return (
    'Medians (lowest to highest of the rounds); an idle contestant used '
    f'{measured["idle_share"]:.1%} of a core.'
  )


def _spread(spread: contest.Spread, form: str) -> str:
  low, high = format(spread.low, form), format(spread.high, form)
  return f'{spread.median:{form}} ({low} to {high})'


def _say(line: str) -> None:
  print(f'unroll: {line}', file=sys.stderr, flush=True)


if __name__ == '__main__':
  app.run(main)
