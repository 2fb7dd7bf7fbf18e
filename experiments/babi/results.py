"""Evaluates the members of an ensemble; writes their errors and examples."""

from collections.abc import Callable
import json

import jax
import numpy as np

from experiments.babi import analysis
from experiments.babi.questions import in_order
from experiments.babi.questions import sets_of_members
from experiments.babi.questions import TrainingSets
from rmc_jax import files
from rmc_jax import losses
from rmc_jax import metrics
from rmc_jax import training
from rmc_jax.metrics import SumsAndCounts
from rmc_jax.tasks.babi import Questions
from rmc_jax.training import parallel
from rmc_jax.training import Runner
from rmc_jax.training import TrainState
from rmc_jax.types import Array

# (state of a member, batch) -> logits [questions, C]
Apply = Callable[[TrainState, dict[str, Array]], Array]
# (state, questions) -> losses and correct answers [members, questions]
Evaluate = Callable[[TrainState, Questions], tuple[np.ndarray, np.ndarray]]


def make_evaluate(apply: Apply, sets: TrainingSets, restarts: int) -> Evaluate:
  """Makes a function that evaluates every member on a split of its set.

  Times are consecutive. A collective of all processes.
  """
  members = parallel.process_rows(len(sets.names) * restarts)

  def evaluate_member(member, batch):
    logits = apply(member, batch)
    each = jax.vmap(losses.softmax_cross_entropy)(logits, batch['answer'])
    correct = jax.vmap(metrics.accuracy)(logits, batch['answer'])
    return each[0], correct[0]

  mapped = parallel.parallel_map(
    lambda _, carry, batch: (
      (),
      training.map_members(evaluate_member)(carry, batch),
    )
  )

  def evaluate(state, questions):
    parts = []
    for batch in in_order(sets, questions, restarts, members):
      _, part = mapped((), state.carry, parallel.split_batch(batch))
      parts.append(parallel.gather_rows(part))
    loss, correct = (
      np.concatenate(each, axis=1) for each in zip(*parts, strict=True)
    )
    return loss, correct

  return evaluate


def sums(evaluated: tuple[np.ndarray, np.ndarray]) -> SumsAndCounts:
  """Returns the sums and counts [members] of loss and accuracy."""
  loss, correct = evaluated
  count = np.full(len(loss), loss.shape[1])
  return {'loss': (loss.sum(1), count), 'accuracy': (correct.sum(1), count)}


def write(
  runner: Runner,
  sets: TrainingSets,
  evaluate: Evaluate,
  state: TrainState,
  restarts: int,
) -> list[analysis.Member]:
  """Writes and returns the training error and test errors of every member.

  Every process of a job must call it.
  """
  loss, train = evaluate(state, sets.train)
  runner.progress('training error', 1, 2)
  _, test = evaluate(state, sets.test)
  runner.progress('test error', 2, 2)
  members: list[analysis.Member] = [
    {
      'set': sets.names[group],
      'restart': m // len(sets.names),
      'train_error': float(np.mean(train[m] == 0)),
      'train_loss': float(loss[m].mean()),
      'test_error': {
        str(task): float(np.mean(test[m][sets.test_task[group] == task] == 0))
        for task in np.unique(sets.test_task[group])
      },
    }
    for m, group in enumerate(sets_of_members(sets, restarts))
  ]
  if runner.is_primary:
    text = json.dumps(members, indent=1)
    files.atomic_write(runner.workdir / analysis.ERRORS, text.encode())
  return members
