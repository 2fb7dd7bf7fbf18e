"""Trains Nth Farthest: Santoro et al. 2018, section 5.1, figures 4 and 5.

The paper: 91 % for the relational memory core, less than 30 % for an LSTM and a
DNC, at 8 vectors of 16 features. "Answer m itself if it is the n-th farthest,
else guess" scores 25 % there and 50 % with the 4 vectors of `quick`.

  python -m experiments.nth_farthest.train                    # quick, minutes
  python -m experiments.nth_farthest.train --preset=quick_lstm
  python -m experiments.nth_farthest.train --preset=paper     # an accelerator

Departures at --preset=paper: queries are scaled by K^-1/2 as the paper prints;
its runs were made when the authors' module scaled them by (2K + V)^-1/2, which
is --config.core.query_scale=qkv. The paper gives neither the number of updates
nor initial values; both are taken from the authors' script and module.
"""

import dataclasses
import functools
from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np

from experiments import command_line
from experiments.nth_farthest import analysis
from experiments.nth_farthest import sweep
from rmc_jax import losses
from rmc_jax import metrics
from rmc_jax import training
from rmc_jax.checks import one_of
from rmc_jax.checks import positive_int
from rmc_jax.cores.build import ATTENDING
from rmc_jax.cores.build import build_core
from rmc_jax.cores.config import CoreConfig
from rmc_jax.cores.relational_memory import RelationalMemoryConfig
from rmc_jax.models import SequenceClassifier
from rmc_jax.tasks import nth_farthest


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
  optimizer: training.OptimizerConfig = dataclasses.field(
    default_factory=training.OptimizerConfig
  )
  eval_examples: int = 16_000  # the same new examples in every evaluation
  run: training.RunConfig = dataclasses.field(
    default_factory=training.RunConfig
  )

  def validate(self) -> None:
    for name in ('num_objects', 'num_features', 'eval_examples'):
      positive_int(name, getattr(self, name))
    one_of('order', self.order, nth_farthest.ORDERS)


def make_model(config: Config) -> SequenceClassifier:
  """Core, read-out MLP and logits, inside an `hk.transform`."""
  return SequenceClassifier(
    build_core(config.core),
    config.num_objects,
    config.hidden_sizes,
    config.remat,
  )


def make_experiment(config: Config) -> training.Experiment:
  """Binds task, model, loss, optimiser and evaluation together."""
  network = hk.without_apply_rng(
    hk.transform(lambda inputs: make_model(config)(inputs))
  )
  optimizer = training.make_optimizer(config.optimizer)
  sample = functools.partial(
    nth_farthest.sample,
    num_objects=config.num_objects,
    num_features=config.num_features,
    order=config.order,
  )
  init_key, train_key, eval_key, _ = config.run.make_keys()

  def init():
    params = network.init(init_key, sample(init_key).inputs[None])
    return training.create_state(params, {}, optimizer, train_key)

  def loss_fn(params, network_state, carry, key, batch):
    del key  # The network has no dropout.
    logits = network.apply(params, batch.inputs)  # [B, C]
    loss, weight = losses.softmax_cross_entropy(logits, batch.target)
    accuracy = {'accuracy': metrics.accuracy(logits, batch.target)}
    return loss, training.LossAux(weight, accuracy, network_state, carry)

  def metric_fn(params, network_state, batch):
    del network_state
    logits = network.apply(params, batch.inputs)  # [B, C]
    return {
      'loss': jax.vmap(losses.softmax_cross_entropy)(logits, batch.target),
      'accuracy': jax.vmap(metrics.accuracy)(logits, batch.target),
    }

  return training.Experiment(
    init=init,
    update=training.make_update(
      loss_fn,
      optimizer,
      global_batch_size=config.batch_size,
      make_batch=training.per_example(lambda key, _: sample(key)),
      updates_per_call=config.run.updates_per_call,
    ),
    evaluate=training.make_evaluate_generated(
      metric_fn,
      sample,
      eval_key,
      num_examples=config.eval_examples,
      global_batch_size=config.batch_size,
    ),
  )


def trace_attention(config: Config, params) -> dict[str, Any]:
  """Attention on three sequences, the content of `analysis.ATTENTION_DATA`.

  As in the paper's figure 3, the reference vector comes last, first, and in the
  middle.
  """
  trace = hk.without_apply_rng(
    hk.transform(lambda inputs: make_model(config).trace(inputs))
  )
  last, key = config.num_objects - 1, config.run.make_keys()[-1]
  questions = []
  for step in (last, 0, last // 2):
    question = nth_farthest.sample_question(
      jax.random.fold_in(key, step), config.num_objects, config.num_features
    )
    questions.append(question._replace(m=question.labels[step]))
  inputs = jnp.stack([nth_farthest.encode(q) for q in questions])
  logits, steps = jax.jit(trace.apply)(params, inputs)
  answers = [nth_farthest.answer(q, config.order) for q in questions]
  return {
    'attention': steps.attention.swapaxes(0, 1),  # [3, T, L, H, N, N + 1]
    'labels': np.stack([q.labels for q in questions]),  # [3, T]
    'n': np.stack([q.n for q in questions]),
    'm': np.stack([q.m for q in questions]),
    'answer': np.stack(answers),
    'prediction': logits.argmax(-1),
    'order': config.order,
  }


def train(config: Config, runner: training.Runner) -> None:
  """Trains, evaluates and draws; resumes a run in the workdir."""
  state = runner.train(make_experiment(config), config.run)
  if runner.is_primary:
    if config.core.name in ATTENDING:
      path = runner.workdir / analysis.ATTENTION_DATA
      path.parent.mkdir(parents=True, exist_ok=True)
      np.savez(path, **trace_attention(config, state.params))
    print(analysis.report(runner.workdir))


if __name__ == '__main__':
  command_line.main(train, Config, sweep.PRESETS, 'nth_farthest')
