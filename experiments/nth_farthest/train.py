"""Trains Nth Farthest: Santoro et al. 2018, section 5.1, figures 4 and 5.

The paper: 91 % for the relational memory core, less than 30 % for an LSTM and a
DNC, at 8 vectors of 16 features. "Know the answer only if it is m itself, else
guess" scores 25 % there and 50 % with the 4 vectors of `quick`.

  python -m experiments.nth_farthest.train                    # quick, minutes
  python -m experiments.nth_farthest.train --preset=quick_lstm
  python -m experiments.nth_farthest.train --preset=paper     # an accelerator

Departures at --preset=paper: queries are scaled by K^-1/2 as the paper prints,
while its runs were made when the authors' module scaled them by (2K + V)^-1/2,
--config.core.query_scale=qkv. The paper is silent on the number of updates and
on initial values, for which the authors' script and module stand in.
"""

from collections.abc import Callable
import dataclasses
import functools
import pathlib
from typing import Any
from typing import NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp

from experiments import command_line
from experiments.nth_farthest import analysis
from experiments.nth_farthest import sweep
from rmc_jax import losses
from rmc_jax import metrics
from rmc_jax import training
from rmc_jax.cores.build import ATTENDING
from rmc_jax.cores.build import build_core
from rmc_jax.cores.config import CoreConfig
from rmc_jax.cores.relational_memory import RelationalMemoryConfig
from rmc_jax.models import SequenceClassifier
from rmc_jax.tasks import nth_farthest
from rmc_jax.training import distributed


@dataclasses.dataclass
class Config:
  """One run. The defaults of all but `core` are the paper's."""

  num_objects: int = 8  # vectors in a sequence, and classes
  num_features: int = 16  # size of a vector; the paper also has 32
  order: str = 'farthest'  # 'nearest': the authors' released dataset
  core: CoreConfig = dataclasses.field(default_factory=RelationalMemoryConfig)
  hidden_sizes: tuple[int, ...] = (256, 256, 256, 256)  # of the read-out MLP
  remat: bool = False  # recompute steps in the backward pass: less memory
  batch_size: int = 1600  # over all devices
  num_steps: int = 1_000_000  # updates
  optimizer: training.OptimizerConfig = dataclasses.field(
    default_factory=training.OptimizerConfig
  )
  seed: int = 0
  eval_examples: int = 16_000  # the same fresh examples at every evaluation
  log_every: int = 100  # updates
  eval_every: int = 1000
  checkpoint_every: int = 1000
  keep_checkpoints: int = 3
  check_replicas_every: int = 1000
  nonfinite: training.NonfiniteConfig = dataclasses.field(
    default_factory=training.NonfiniteConfig
  )
  updates_per_call: int = 20  # updates made on the devices at a time

  def validate(self) -> None:
    for name in ('num_objects', 'num_features', 'eval_examples'):
      if getattr(self, name) < 1:
        raise ValueError(f'{name} must be >= 1. Got: {getattr(self, name)}.')
    if self.order not in nth_farthest.ORDERS:
      raise ValueError(
        f'order must be one of {", ".join(nth_farthest.ORDERS)}. '
        f'Got: {self.order!r}.'
      )


def make_model(config: Config) -> SequenceClassifier:
  """Core, read-out MLP and logits, inside an `hk.transform`."""
  return SequenceClassifier(
    build_core(config.core),
    config.num_objects,
    config.hidden_sizes,
    config.remat,
  )


def make_sample(config: Config):
  """key -> one example, made on the device."""
  return functools.partial(
    nth_farthest.sample,
    num_objects=config.num_objects,
    num_features=config.num_features,
    order=config.order,
  )


class Functions(NamedTuple):
  """What `training.train` calls; there is said what each of them does."""

  init: Callable[[], training.TrainState]
  update: Callable[..., Any]
  evaluate: Callable[..., Any]


def make_functions(config: Config) -> Functions:
  """Binds model, task, loss and optimiser together; computes nothing yet."""
  network = hk.without_apply_rng(
    hk.transform(lambda inputs: make_model(config)(inputs))
  )
  optimizer = training.make_optimizer(config.optimizer)
  sample = make_sample(config)
  base_key, init_key, train_key, eval_key, _ = _keys(config)

  def init():
    example = sample(init_key)
    params = network.init(init_key, example.inputs[None])
    return training.create_state(params, {}, optimizer, base_key)

  def loss_fn(params, network_state, key, batch):
    del key  # the network has no dropout
    logits = network.apply(params, batch.inputs)
    loss, weight = losses.softmax_cross_entropy(logits, batch.target)
    accuracy = {'accuracy': metrics.accuracy(logits, batch.target)}
    return loss, training.LossAux(weight, accuracy, network_state)

  def metric_fn(params, network_state, batch):
    del network_state  # the network has none
    logits = network.apply(params, batch.inputs)
    return {
      'loss': jax.vmap(losses.softmax_cross_entropy)(logits, batch.target),
      'accuracy': jax.vmap(metrics.accuracy)(logits, batch.target),
    }

  update = training.make_update(
    loss_fn,
    optimizer,
    global_batch_size=config.batch_size,
    sample=lambda key, _: sample(key),
    data_key=train_key,
    updates_per_call=config.updates_per_call,
  )
  evaluate = training.make_evaluate_generated(
    metric_fn,
    sample,
    eval_key,
    num_examples=config.eval_examples,
    global_batch_size=config.batch_size,
  )
  return Functions(init, update, evaluate)


def train(config: Config, workdir: pathlib.Path) -> None:
  """Trains, evaluates and draws; resumes what it finds in `workdir`."""
  functions = make_functions(config)
  state = training.train(
    workdir,
    init=functions.init,
    update=functions.update,
    evaluate=functions.evaluate,
    num_steps=config.num_steps,
    updates_per_call=config.updates_per_call,
    log_every=config.log_every,
    eval_every=config.eval_every,
    checkpoint_every=config.checkpoint_every,
    keep_checkpoints=config.keep_checkpoints,
    check_replicas_every=config.check_replicas_every,
    nonfinite=config.nonfinite,
  )
  if distributed.is_primary():
    if config.core.name in ATTENDING:
      figure_key = _keys(config)[-1]
      record_attention(config, state.params, figure_key, workdir)
    print(analysis.report(workdir))


def record_attention(config: Config, params, key, workdir: pathlib.Path):
  """Saves what the core attends to in three sequences, for `analysis`.

  They are those of the paper's figure 3: the reference vector is shown last,
  first, and in the middle.
  """
  trace = hk.without_apply_rng(
    hk.transform(lambda inputs: make_model(config).trace(inputs))
  )
  last = config.num_objects - 1
  questions = [
    nth_farthest.sample_question(
      jax.random.fold_in(key, step), config.num_objects, config.num_features
    )
    for step in (last, 0, last // 2)
  ]
  questions = [
    question._replace(m=question.labels[step])
    for question, step in zip(questions, (last, 0, last // 2), strict=True)
  ]
  inputs = jnp.stack([nth_farthest.encode(q) for q in questions])
  logits, steps = jax.jit(trace.apply)(params, inputs)
  analysis.save_attention(
    workdir,
    attention=steps.attention.swapaxes(0, 1),  # [3, T, L, H, N, N + 1]
    labels=jnp.stack([q.labels for q in questions]),
    n=jnp.stack([q.n for q in questions]),
    m=jnp.stack([q.m for q in questions]),
    answer=jnp.stack([nth_farthest.answer(q, config.order) for q in questions]),
    prediction=logits.argmax(-1),
    order=config.order,
  )


def _keys(config: Config) -> jax.Array:
  """[5] keys: of the state, the weights, the data, evaluation and figures."""
  return jax.random.split(jax.random.key(config.seed), 5)


if __name__ == '__main__':
  command_line.main(
    train,
    Config,
    sweep.PRESETS,
    experiment='nth_farthest',
    preset='quick',
  )
