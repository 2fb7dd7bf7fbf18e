"""Trains a language model: Santoro et al. 2018, section 5.4, table 2.

Perplexity on validation and test, next to the only earlier model with numbers
for all three corpora:

                 WikiText-103   Gutenberg   GigaWord v5
  LSTM [29] *     34.1  34.3    41.8  45.5     -   43.7
  RMC             30.8  31.6    39.2  42.0     -   38.3

  * With Hebbian softmax.

  python -m rmc_jax.datasets.prepare wikitext2
  python -m experiments.language_modeling.train               # quick, minutes
  python -m experiments.language_modeling.train --preset=wikitext103

Departures: docs/language-modeling.md lists what the paper leaves open.
"""

import dataclasses
import functools

import haiku as hk
import jax
import numpy as np

from experiments import command_line
from experiments.language_modeling import analysis
from experiments.language_modeling import network
from experiments.language_modeling import perplexity
from experiments.language_modeling import results
from experiments.language_modeling import sweep
from experiments.language_modeling.corpus import check_same_corpus
from experiments.language_modeling.corpus import Corpus
from experiments.language_modeling.corpus import open_corpus
from rmc_jax import training
from rmc_jax.checks import one_of
from rmc_jax.checks import positive_int
from rmc_jax.cores.build import build_core
from rmc_jax.cores.config import CoreConfig
from rmc_jax.cores.relational_memory import RelationalMemoryConfig
from rmc_jax.datasets.load import STYLES
from rmc_jax.errors import ConfigurationError
from rmc_jax.models import LanguageModel
from rmc_jax.tasks.language.windows import Windows
from rmc_jax.training import parallel


@dataclasses.dataclass
class Config:
  """One run. The defaults of all but corpus and core are the paper's."""

  corpus: str = 'wikitext2'  # one of datasets.load.NAMES
  data_dir: str = training.may_change_on_resume(default='data')  # of prepare
  vocabulary_size: int | None = None  # words at most; None: all
  lower_case: bool = False
  core: CoreConfig = dataclasses.field(default_factory=RelationalMemoryConfig)
  embedding_size: int = 512
  embedding_dropout: float = 0.5
  output_dropout: float = 0.0
  head: str = 'tied'  # 'adaptive', with cutoffs
  cutoffs: tuple[int, ...] = ()
  num_sampled: int = 0  # words in the sampled loss; 0: exact
  block_size: int = 8192  # words at a time in the softmax
  remat: bool = False  # recompute steps in the backward pass: less memory
  batch_size: int = 384  # rows of text over all devices
  window: int = 100  # words of each row in an update
  optimizer: training.OptimizerConfig = dataclasses.field(
    default_factory=training.OptimizerConfig
  )
  # Words of 'valid' in an evaluation during training; the end measures all.
  eval_tokens: int = training.may_change_on_resume(default=20_000)
  # Rows that evaluation reads side by side; 1: one row, the exact perplexity.
  eval_rows: int = training.may_change_on_resume(default=64)
  eval_lengths: tuple[int, ...] = training.may_change_on_resume(
    default=(10, 20, 50, 100, 200, 500, 1000)
  )
  run: training.RunConfig = dataclasses.field(
    default_factory=lambda: training.RunConfig(num_steps=100_000)
  )

  def validate(self) -> None:
    one_of('corpus', self.corpus, STYLES)
    for name in ('eval_tokens', 'eval_rows', 'window', 'batch_size'):
      positive_int(name, getattr(self, name))
    for i, length in enumerate(self.eval_lengths):
      positive_int(f'eval_lengths[{i}]', length)
    if self.vocabulary_size is not None:
      # Two symbols: <eos> and <unk>.
      positive_int('vocabulary_size', self.vocabulary_size, least=2)
    self.run.check_host_batches()
    # Raises what the model's constructor would raise.
    size = self.vocabulary_size or max((self.num_sampled, 2, *self.cutoffs)) + 1
    hk.transform(lambda: make_model(self, size) and None).init(None)


def make_source(config: Config, corpus: Corpus) -> training.FunctionSource:
  """Windows of the training text; a function of the step."""
  windows = Windows(corpus.ids['train'], config.batch_size, config.window)
  rows = parallel.process_rows(config.batch_size)
  return training.FunctionSource(lambda step: windows.batch_at(step, rows))


def make_model(config: Config, vocabulary_size: int) -> LanguageModel:
  """The model, inside an `hk.transform`."""
  return LanguageModel(
    build_core(config.core),
    vocabulary_size,
    embedding_size=config.embedding_size,
    embedding_dropout=config.embedding_dropout,
    output_dropout=config.output_dropout,
    head=config.head,
    cutoffs=config.cutoffs,
    num_sampled=config.num_sampled,
    block_size=config.block_size,
    remat=config.remat,
  )


def make_init(config: Config, vocabulary_size: int):
  """Makes the function that returns the state of step 0."""
  make = functools.partial(make_model, config, vocabulary_size)
  optimizer = training.make_optimizer(config.optimizer)

  def init():
    base_key, init_key = jax.random.split(jax.random.key(config.run.seed))
    state = network.make_evaluated(make).initial_state(config.batch_size)
    batch = np.zeros((config.batch_size, 1), np.int32)
    reset = np.zeros(config.batch_size, bool)
    params = network.make_loss(make).init(init_key, batch, batch, state, reset)
    return training.create_state(params, {}, optimizer, base_key, carry=state)

  return init


def make_experiment(config: Config, corpus: Corpus) -> training.Experiment:
  """Binds text, model, loss, optimiser and evaluation together."""
  vocabulary = corpus.vocabulary
  make = functools.partial(make_model, config, vocabulary.size)
  cross_entropy = network.make_loss(make)
  evaluated = network.make_evaluated(make)
  init = make_init(config, vocabulary.size)
  jax.eval_shape(init)  # Raises errors of the model before the training.

  def loss_fn(params, network_state, carry, key, batch):
    (loss, weight), carry = cross_entropy.apply(
      params, key, batch['inputs'], batch['targets'], carry, batch['reset']
    )
    # carry gets no gradient: back-propagation is truncated at the window.
    return loss, training.LossAux(weight, {}, network_state, carry)

  def evaluate(state):
    log_probs = perplexity.token_log_probs(
      evaluated,
      state.params,
      corpus.ids['valid'][: config.eval_tokens],
      config.window,
      vocabulary.eos,
      num_rows=config.eval_rows,
    )
    return {'loss': (-log_probs.sum(), len(log_probs))}

  return training.Experiment(
    init=init,
    update=training.make_update(
      loss_fn,
      training.make_optimizer(config.optimizer),
      global_batch_size=config.batch_size,
    ),
    evaluate=evaluate,
    source=make_source(config, corpus),
  )


def train(config: Config, runner: training.Runner) -> None:
  """Trains, evaluates and draws; resumes a run in the workdir."""
  try:
    corpus = open_corpus(
      config.corpus,
      config.data_dir,
      config.vocabulary_size,
      config.lower_case,
      progress_fn=runner.progress,
    )
    experiment = make_experiment(config, corpus)
  except (PermissionError, ValueError) as error:
    raise ConfigurationError(str(error)) from error
  check_same_corpus(runner.workdir, corpus)
  state = runner.train(experiment, config.run)
  make = functools.partial(make_model, config, corpus.vocabulary.size)
  results.write(config, make, state.params, corpus, runner)
  if runner.is_primary:
    print(analysis.report(runner.workdir))


if __name__ == '__main__':
  command_line.main(train, Config, sweep.PRESETS, 'language_modeling')
