"""Times memory networks on stories against a port to PyTorch.

  launch/benchmark.sh babi --sizes=all --output=results.json

Trains three hops with position encoding on random stories of the sizes of the
bAbI tasks. `rmc_jax` trains all members at once as experiments/babi does, with
random noise, data included; `torch` trains one model after another as public
ports do, without noise. Loss and gradients must agree before they are timed.
`ratio` is the time per question relative to rmc_jax in each trial: above 1
rmc_jax is faster.
"""

import argparse
from typing import Any

import numpy as np
from rich.table import Table

from experiments import command_line
from experiments.benchmarks import agreement
from experiments.benchmarks import harness
from experiments.benchmarks import report
from experiments.benchmarks import throughput

# Vocabulary, memory and longest sentence of the 20 tasks with 1,000 questions.
_TASKS = (
  (20, 10, 6), (34, 50, 6), (35, 50, 7), (15, 2, 7), (40, 50, 7),
  (36, 26, 6), (44, 34, 6), (46, 46, 6), (24, 10, 7), (25, 10, 9),
  (27, 10, 8), (21, 10, 8), (27, 10, 8), (26, 14, 8), (18, 8, 5),
  (18, 9, 4), (19, 2, 11), (19, 15, 9), (32, 5, 10), (36, 12, 7),
)  # fmt: skip
# Name -> the sizes of the tasks, and members for each.
SIZES = {
  'table_1': (_TASKS, 10),
  'one_member': (_TASKS[1:2], 1),
  'one_short_member': (_TASKS[:1], 1),
}
_QUESTIONS = 900
_WIDTH, _HOPS = 20, 3


def main(arguments: list[str] | None = None) -> None:
  """Measures size after size, and prints a table for each."""
  parser = report.make_parser('babi', __doc__, SIZES, 'table_1')
  report.run(parser, parser.parse_args(arguments), arguments, measure, table)


def measure(name: str, options: argparse.Namespace) -> dict[str, Any]:
  """Times both on the same stories and initial weights."""
  tasks, restarts = SIZES[name]
  members = len(tasks) * restarts
  devices = min(command_line.default_cpu_devices(), members)
  expected = {}

  def check(results):
    expected.update(expected or results)
    differences = agreement.difference(results, expected)
    if reason := agreement.disagreement(differences, 'float32'):
      raise harness.Failed(reason)
    return {'difference': differences}

  with harness.Session(options) as session:
    path = session.folder / 'stories.npz'
    np.savez(path, **make_arrays(tasks))
    request = {
      'program': 'babi',
      'arrays': str(path),
      'restarts': restarts,
      'device': options.device,
    }
    for label, worker in (
      ('rmc_jax', 'training_worker'),
      ('torch', 'torch_memn2n_worker'),
    ):
      session.add(
        label,
        worker,
        request,
        check=check,
        variables=[{'JAX_NUM_CPU_DEVICES': str(devices)}],
        required=label == 'rmc_jax',
      )
    session.time()
    return session.result(members=members)


def make_arrays(tasks: tuple[tuple[int, int, int], ...]) -> dict[str, Any]:
  """Makes stories, questions and answers of G tasks, and one model's weights.

  Returns:
    `sizes` [G, 3]; `story` [G, N, M, J], `length` [G, N], `question` [G, N, J]
    and `answer` [G, N], padded with zeros; `weights` [K + 1, V + M, d].
  """
  rng = np.random.default_rng(0)
  sizes = np.array(tasks, np.int32)
  vocabulary, memory, sentence = sizes.max(0)
  shape = len(tasks), _QUESTIONS
  arrays = {
    'sizes': sizes,
    'story': np.zeros((*shape, memory, sentence), np.uint8),
    'length': np.zeros(shape, np.int32),
    'question': np.zeros((*shape, sentence), np.uint8),
    'answer': np.zeros(shape, np.int32),
    'weights': 0.1
    * rng.standard_normal(
      (_HOPS + 1, vocabulary + memory, _WIDTH), dtype=np.float32
    ),
  }
  for g, (v, m, j) in enumerate(tasks):
    words = rng.integers(1, v, (_QUESTIONS, m, j))
    length = rng.integers(1, m + 1, _QUESTIONS)
    words[np.arange(m) >= length[:, None]] = 0
    arrays['story'][g, :, :m, :j] = words
    arrays['length'][g] = length
    arrays['question'][g, :, :j] = rng.integers(1, v, (_QUESTIONS, j))
    arrays['answer'][g] = rng.integers(1, v, _QUESTIONS)
  return arrays


def table(name: str, measured: dict[str, Any]) -> Table:
  """Makes a table of both."""
  title = f'{name}: {measured["members"]} members, {_HOPS} hops of {_WIDTH}'
  return throughput.table('questions', title, measured)


if __name__ == '__main__':
  main()
