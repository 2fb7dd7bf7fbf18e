"""Writes the attention of each hop, on example questions and on average.

`experiments.babi.hops` reads and draws it: figure 2 of Sukhbaatar et al. 2015.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import json
from typing import Any
from typing import NamedTuple

import haiku as hk
import jax
import numpy as np

from experiments.babi import analysis
from experiments.babi import hops
from experiments.babi import published
from experiments.babi.questions import in_order
from experiments.babi.questions import TrainingSets
from rmc_jax import files
from rmc_jax import training
from rmc_jax.training import parallel
from rmc_jax.training import Runner
from rmc_jax.training import TrainState
from rmc_jax.types import Array
from rmc_jax.types import ArrayTree

NUM_QUESTIONS = 10  # of each task


class Answers(NamedTuple):
  """The answers to all test questions, by one member of each set.

  Attributes:
    prediction: [G, N] the class with the largest logit.
    probability: [G, N] of the prediction.
    attention: [G, N, K, M].
  """

  prediction: np.ndarray
  probability: np.ndarray
  attention: np.ndarray


def write(
  runner: Runner,
  network: hk.Transformed,
  sets: TrainingSets,
  state: TrainState,
  errors: Sequence[analysis.Member],
) -> None:
  """Writes `hops.EXAMPLES`, for the member of each set that is selected.

  For every task: the first test questions, and the mean attention on supporting
  statements over all of them. Every process of a job must call it.

  Args:
    runner: of the job.
    network: (batch, linear) -> logits [B, C] and attention [B, K, M].
    sets: the training sets.
    state: of the ensemble.
    errors: of every member, as `analysis.select` takes them.
  """
  members = state.carry
  params, linear = parallel.gather_rows(
    (members.params, members.network_state['linear'])
  )
  if not runner.is_primary:
    return
  # One member of each set is little work, and may not divide over the devices.
  best = analysis.select(errors)
  rows = [best[name] for name in sets.names]
  params, linear = jax.tree.map(lambda leaf: leaf[rows], (params, linear))
  answers = answer(network, sets, params, linear)
  tasks = [
    {
      'task': int(task),
      'name': published.NAMES[task - 1],
      'set': name,
      'restart': errors[rows[g]]['restart'],
      'linear': bool(linear[g]),
      **_on_supporting(sets, answers, g, task),
      'questions': [
        _question(sets, answers, g, n)
        for n in np.flatnonzero(sets.test_task[g] == task)[:NUM_QUESTIONS]
      ],
    }
    for g, name in enumerate(sets.names)
    for task in np.unique(sets.test_task[g])
  ]
  text = json.dumps(tasks, indent=1)
  files.atomic_write(runner.workdir / hops.EXAMPLES, text.encode())


def answer(
  network: hk.Transformed, sets: TrainingSets, params: ArrayTree, linear: Array
) -> Answers:
  """Answers the test questions, on one device of this process.

  Args:
    network: (batch, linear) -> logits [B, C] and attention [B, K, M].
    sets: G training sets.
    params: leaves [G, ...], of one member per set.
    linear: [G] whether it has no softmax.
  """

  def answer_member(params, linear, batch):
    logits, attention = network.apply(params, batch, linear)
    probability = jax.nn.softmax(logits).max(-1)
    return logits.argmax(-1), probability, attention

  compute = jax.jit(training.map_members(answer_member))
  parts = [
    compute(params, linear, batch)
    for batch in in_order(sets, sets.test, 1, slice(None))
  ]
  return Answers(
    *(np.concatenate(each, 1) for each in zip(*parts, strict=True))
  )


def _on_supporting(
  sets: TrainingSets, answers: Answers, g: int, task: int
) -> Mapping[str, Any]:
  """Returns the mean attention of each hop on all supporting statements.

  The mean is over the test questions with a supporting statement in the memory,
  or null without any, as in files that do not name them. 'uniform' is that of
  equal attention to all statements.
  """
  supporting = sets.test.supporting[g] > 0  # [N, M]
  chosen = (sets.test_task[g] == task) & supporting.any(1)  # [N]
  if not chosen.any():
    return {'on_supporting': None, 'uniform': None}
  supporting = supporting[chosen]
  attention = np.einsum(
    'nkm,nm->nk', answers.attention[g, chosen], supporting, dtype=float
  )
  uniform = supporting.sum(1) / sets.test.length[g, chosen]
  return {
    'on_supporting': _rounded(attention.mean(0)),
    'uniform': _rounded(uniform.mean()),
  }


def _question(
  sets: TrainingSets, answers: Answers, g: int, n: int
) -> Mapping[str, Any]:
  """Returns a test question with the statements that the memory holds."""
  test, vocabulary = sets.test, sets.vocabularies[g]
  attention = answers.attention[g, n]  # [K, M]
  length = int(test.length[g, n])
  # The memory has the newest statement first, a story the oldest.
  statements = [
    {
      'text': vocabulary.decode(test.story[g, n, m]),
      'supporting': bool(test.supporting[g, n, m]),
      'attention': _rounded(attention[:, m]),
    }
    for m in reversed(range(length))
  ]
  return {
    'statements': statements,
    'empty_slots': _rounded(attention[:, length:].sum(1)),
    'question': vocabulary.decode(test.question[g, n]),
    'answer': vocabulary.symbols[test.answer[g, n]],
    'prediction': _symbol(vocabulary.symbols, int(answers.prediction[g, n])),
    'probability': _rounded(answers.probability[g, n]),
  }


def _symbol(symbols: Sequence[str], index: int) -> str:
  """Returns the name of a class; those after the symbols are times."""
  return symbols[index] if index < len(symbols) else '<time>'


def _rounded(values: np.ndarray) -> Any:
  """Returns a number, or a list of them, with four decimals."""
  return np.round(np.asarray(values, float), 4).tolist()
