"""Builds the experiment that trains an ensemble on bAbI."""

from collections.abc import Callable
from typing import Protocol

import jax
import optax

from experiments.babi import results
from experiments.babi.questions import Batches
from experiments.babi.questions import TrainingSets
from rmc_jax import training
from rmc_jax.training.update import LossFn
from rmc_jax.types import Array
from rmc_jax.types import ArrayTree


class Config(Protocol):
  """The fields that the configurations of all bAbI pages share."""

  restarts: int  # initial values per training set
  batch_size: int  # of each member
  run: training.RunConfig


def make_experiment(
  config: Config,
  sets: TrainingSets,
  init: Callable[[Array], tuple[ArrayTree, ArrayTree]],
  loss_fn: LossFn,
  optimizer: optax.GradientTransformation,
  evaluate: results.Evaluate,
  *,
  reduction: str = 'mean',
  random_noise: float = 0.0,
  on_evaluation: Callable | None = None,
) -> training.Experiment:
  """Returns the experiment that trains `restarts` members on each set.

  Args:
    config: the run.
    sets: the training sets.
    init: key -> params and network state of one member.
    loss_fn: of one member.
    optimizer: of one member.
    evaluate: on `sets.valid` while training.
    reduction: see `training.make_update`.
    random_noise: in time, see `questions.Batches`.
    on_evaluation: see `training.Experiment`.
  """
  num_members = len(sets.names) * config.restarts

  def init_member(key):
    return training.create_state(*init(key), optimizer, key)

  def init_all():
    keys = jax.random.split(jax.random.key(config.run.seed), num_members)
    return training.create_ensemble(jax.vmap(init_member)(keys))

  return training.Experiment(
    init=init_all,
    update=training.make_ensemble_update(
      loss_fn,
      optimizer,
      num_members=num_members,
      batch_size=config.batch_size,
      reduction=reduction,
    ),
    evaluate=lambda state: results.sums(evaluate(state, sets.valid)),
    source=Batches(
      sets,
      config.restarts,
      config.batch_size,
      config.run.seed,
      random_noise,
      training.process_rows(num_members),
    ),
    on_evaluation=on_evaluation,
  )
