"""Trains the MemN2N language model: Sukhbaatar et al. 2015, section 5.

Perplexity on validation and test in table 2 of the paper:

                              Penn Treebank      Text8
  LSTM                          120   115      122  154
  MemN2N, 6 hops, 100 words     122   115      124  155
  best MemN2N                   118   111      118  147

  python -m rmc_jax.datasets.prepare wikitext2
  python -m experiments.memory_language_model.train            # quick, minutes
  python -m experiments.memory_language_model.train --preset=ptb

docs/memory_language_model.md lists the departures.
"""

import dataclasses

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np

from experiments import command_line
from experiments.language_modeling.corpus import check_same_corpus
from experiments.language_modeling.corpus import Corpus
from experiments.language_modeling.corpus import open_corpus
from experiments.memory_language_model import analysis
from experiments.memory_language_model import annealing
from experiments.memory_language_model import results
from experiments.memory_language_model import sweep
from rmc_jax import losses
from rmc_jax import training
from rmc_jax.checks import one_of
from rmc_jax.checks import positive_int
from rmc_jax.datasets.load import STYLES
from rmc_jax.errors import ConfigurationError
from rmc_jax.models import MemN2NLanguageModel
from rmc_jax.tasks.language.contexts import contexts
from rmc_jax.tasks.language.contexts import random_rows


@dataclasses.dataclass
class Config:
  """One run. The defaults are those of the paper for Penn Treebank."""

  corpus: str = 'ptb'  # one of datasets.load.NAMES with a text
  data_dir: str = training.may_change_on_resume(default='data')  # of prepare
  vocabulary_size: int | None = None  # words at most; None: all
  embedding_size: int = 150
  num_linear: int = 75  # units without a ReLU
  num_hops: int = 6
  memory_size: int = 100  # words
  init_stddev: float = 0.05
  batch_size: int = 128  # words predicted in an update
  clip_norm: float = 50.0  # of the whole gradient, summed over the batch
  learning_rate: float = 0.01
  anneal_factor: float = 1.5  # divides the rate after an evaluation whose loss
  improvement: float = 0.9999  # is above this share of the previous one,
  final_rate: float = 1e-5  # until the rate is below this and becomes 0
  eval_tokens: int | None = None  # words of 'valid' in training; None: all
  # An epoch is run.eval_every updates.
  run: training.RunConfig = dataclasses.field(
    default_factory=lambda: training.RunConfig(**sweep.PTB['run'])
  )

  def validate(self) -> None:
    one_of('corpus', self.corpus, STYLES)
    positive_int('batch_size', self.batch_size)
    if self.vocabulary_size is not None:
      # Two symbols: <eos> and <unk>.
      positive_int('vocabulary_size', self.vocabulary_size, least=2)
    if self.eval_tokens is not None:
      positive_int('eval_tokens', self.eval_tokens, self.memory_size + 1)
    for name in ('init_stddev', 'clip_norm', 'learning_rate', 'final_rate'):
      if not getattr(self, name) > 0:
        raise ValueError(
          f'{name} must be positive. Got: {getattr(self, name)}.'
        )
    if not self.anneal_factor > 1:
      raise ValueError(
        f'anneal_factor must be above 1. Got: {self.anneal_factor}.'
      )
    # Raises what the model's constructor would raise.
    hk.transform(lambda: make_model(self, 2) and None).init(None)


def make_source(config: Config, ids: np.ndarray) -> training.FunctionSource:
  """Random words with those before them, [B, N + 1]; a function of the step."""
  rows = contexts(ids, config.memory_size)
  own = training.process_rows(config.batch_size)

  def batch(step):
    drawn = random_rows(len(rows), config.batch_size, config.run.seed, step)
    return rows[drawn[own]]

  return training.FunctionSource(batch)


def make_model(config: Config, vocabulary_size: int) -> MemN2NLanguageModel:
  """The model, inside an `hk.transform`."""
  return MemN2NLanguageModel(
    vocabulary_size,
    config.memory_size,
    config.embedding_size,
    config.num_hops,
    config.num_linear,
    config.init_stddev,
  )


def make_network(config: Config, vocabulary_size: int) -> hk.Transformed:
  """words [B, N] -> logits [B, V] and attention [B, K, N]."""
  return hk.without_apply_rng(
    hk.transform(lambda words: make_model(config, vocabulary_size)(words))
  )


def make_experiment(config: Config, corpus: Corpus) -> training.Experiment:
  """Binds text, model, loss, optimiser and evaluation together."""
  network = make_network(config, corpus.vocabulary.size)
  optimizer = annealing.make_optimizer(config.learning_rate, config.clip_norm)
  valid = results.make_evaluate(
    network,
    corpus.ids['valid'][: config.eval_tokens],
    config.memory_size,
    config.batch_size,
  )

  def init():
    base_key, init_key = jax.random.split(jax.random.key(config.run.seed))
    words = jnp.zeros((1, config.memory_size), jnp.int32)
    params = network.init(init_key, words)
    return training.create_state(params, {}, optimizer, base_key)

  def loss_fn(params, network_state, carry, key, batch):
    del key
    logits, _ = network.apply(params, batch[:, :-1])
    target = batch[:, -1].astype(jnp.int32)
    loss, weight = losses.softmax_cross_entropy(logits, target)
    return loss, training.LossAux(weight, {}, network_state, carry)

  def evaluate(state):
    rate = annealing.learning_rate(state), 1
    return {'loss': valid(state)['loss'], 'learning_rate': rate}

  def on_evaluation(state, means):
    if int(state.step) % config.run.eval_every:
      return state  # The end of a run within an epoch.
    return annealing.end_epoch(
      state,
      means['loss'],
      factor=config.anneal_factor,
      improvement=config.improvement,
      final_rate=config.final_rate,
    )

  return training.Experiment(
    init=init,
    update=training.make_update(
      loss_fn,
      optimizer,
      global_batch_size=config.batch_size,
      reduction='sum',  # The paper does not average over the batch.
      updates_per_call=config.run.updates_per_call,
    ),
    evaluate=evaluate,
    source=make_source(config, corpus.ids['train']),
    on_evaluation=on_evaluation,
  )


def train(config: Config, runner: training.Runner) -> None:
  """Trains, evaluates and draws; resumes a run in the workdir."""
  try:
    corpus = open_corpus(
      config.corpus,
      config.data_dir,
      config.vocabulary_size,
      progress_fn=runner.progress,
    )
    experiment = make_experiment(config, corpus)
  except (PermissionError, ValueError) as error:
    raise ConfigurationError(str(error)) from error
  check_same_corpus(runner.workdir, corpus)
  state = runner.train(experiment, config.run)
  network = make_network(config, corpus.vocabulary.size)
  results.write(
    runner, network, corpus, state, config.memory_size, config.batch_size
  )
  if runner.is_primary:
    print(analysis.report(runner.workdir))


if __name__ == '__main__':
  command_line.main(train, Config, sweep.PRESETS, 'memory_language_model')
