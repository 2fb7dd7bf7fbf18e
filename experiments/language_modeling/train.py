"""Trains a language model: Santoro et al. 2018, section 5.4, table 2.

Perplexity on validation and test, and of the only one before with figures for
all three:

                 WikiText-103   Gutenberg   GigaWord v5
  LSTM [29] *     34.1  34.3    41.8  45.5     -   43.7
  RMC             30.8  31.6    39.2  42.0     -   38.3

  * With Hebbian softmax.

  python -m rmc_jax.datasets.prepare wikitext2
  python -m experiments.language_modeling.train               # quick, minutes
  python -m experiments.language_modeling.train --preset=wikitext103

Departures: docs/language-modeling.md has what the paper leaves open, and what
stands for it here.
"""

from collections.abc import Callable
import dataclasses
import functools
import json
import pathlib
import time
from typing import Any
from typing import NamedTuple

import haiku as hk
import jax
import numpy as np

from experiments import command_line
from experiments.language_modeling import analysis
from experiments.language_modeling import perplexity
from experiments.language_modeling import sweep
from experiments.language_modeling.corpus import Corpus
from experiments.language_modeling.corpus import hold_to
from experiments.language_modeling.corpus import identity
from experiments.language_modeling.corpus import open_corpus
from experiments.language_modeling.generate import generate
from experiments.language_modeling.generate import Read
from rmc_jax import files
from rmc_jax import training
from rmc_jax.cores.build import ATTENDING
from rmc_jax.cores.build import build_core
from rmc_jax.cores.config import CoreConfig
from rmc_jax.cores.relational_memory import RelationalMemoryConfig
from rmc_jax.datasets.load import STYLES
from rmc_jax.errors import ConfigurationError
from rmc_jax.errors import Preempted
from rmc_jax.models import LanguageModel
from rmc_jax.tasks.language.windows import Windows
from rmc_jax.training import distributed
from rmc_jax.training import parallel
from rmc_jax.training import watchdog
from rmc_jax.training.preemption import Preemption
from rmc_jax.training.progress import say


@dataclasses.dataclass
class Config:
  """One run. The defaults of all but corpus and core are the paper's."""

  corpus: str = 'wikitext2'  # one of datasets.load.NAMES
  data_dir: str = 'data'  # where prepare has put it
  vocabulary_size: int | None = None  # words at most; None: all
  lower_case: bool = False
  core: CoreConfig = dataclasses.field(default_factory=RelationalMemoryConfig)
  embedding_size: int = 512
  embedding_dropout: float = 0.5
  output_dropout: float = 0.0
  head: str = 'tied'  # 'adaptive', with cutoffs
  cutoffs: tuple[int, ...] = ()
  num_sampled: int = 0  # words the loss is estimated from; 0: exact
  block_size: int = 8192  # words at a time in the softmax
  remat: bool = False  # recompute steps in the backward pass: less memory
  batch_size: int = 384  # rows of text over all devices
  window: int = 100  # words of each row in an update
  num_steps: int = 100_000  # updates
  optimizer: training.OptimizerConfig = dataclasses.field(
    default_factory=training.OptimizerConfig
  )
  seed: int = 0
  eval_tokens: int = 20_000  # of 'valid', at each evaluation; the end has all
  eval_lengths: tuple[int, ...] = (10, 20, 50, 100, 200, 500, 1000)
  log_every: int = 100  # updates
  eval_every: int = 1000
  checkpoint_every: int = 1000
  keep_checkpoints: int = 3
  check_replicas_every: int = 1000
  nonfinite: training.NonfiniteConfig = dataclasses.field(
    default_factory=training.NonfiniteConfig
  )

  def validate(self) -> None:
    if self.corpus not in STYLES:
      raise ValueError(
        f'corpus must be one of {", ".join(STYLES)}. Got: {self.corpus!r}.'
      )
    for name in ('eval_tokens', 'window', 'batch_size'):
      if getattr(self, name) < 1:
        raise ValueError(f'{name} must be >= 1. Got: {getattr(self, name)}.')
    if min(self.eval_lengths, default=1) < 1:
      raise ValueError(
        f'eval_lengths must be >= 1, each. Got: {self.eval_lengths}.'
      )
    if self.vocabulary_size is not None and self.vocabulary_size < 2:
      raise ValueError(
        'vocabulary_size must be >= 2: <eos> and <unk> are words. '
        f'Got: {self.vocabulary_size}.'
      )
    # What the model refuses, for as many words as there may be.
    size = self.vocabulary_size or max((self.num_sampled, 2, *self.cutoffs)) + 1
    make = hk.transform(lambda: make_model(self, size) and None)
    make.init(None)


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


class Functions(NamedTuple):
  """What `training.train` calls; there is said what each of them does."""

  init: Callable[[], training.TrainState]
  update: Callable[..., Any]
  evaluate: Callable[..., Any]
  batch_at: Callable[[int], Any]


def make_functions(config: Config, corpus: Corpus) -> Functions:
  """Binds model, text, loss and optimiser together; computes nothing yet."""
  vocabulary_size = corpus.vocabulary.size
  windows = Windows(corpus.ids['train'], config.batch_size, config.window)
  init = make_init(config, vocabulary_size)
  jax.eval_shape(init)  # What the model refuses, before anything is computed.
  optimizer = training.make_optimizer(config.optimizer)
  model = make_evaluated(config, vocabulary_size)

  cross_entropy = make_loss(config, vocabulary_size)

  def loss_fn(params, state, key, batch):
    (loss, weight), state = cross_entropy.apply(
      params, key, batch['inputs'], batch['targets'], state, batch['reset']
    )
    # No gradient goes back through the state: back-propagation is truncated.
    return loss, training.LossAux(weight, {}, state)

  def evaluate(state):
    ids = corpus.ids['valid'][: config.eval_tokens]
    log_probs = perplexity.token_log_probs(
      model,
      local(state.params),
      ids,
      config.window,
      corpus.vocabulary.eos,
      tell=lambda *_: watchdog.beat(),
    )
    return {'loss': (-log_probs.sum(), len(log_probs))}

  update = training.make_update(
    loss_fn, optimizer, global_batch_size=config.batch_size, carry=True
  )
  rows = parallel.process_rows(config.batch_size)
  return Functions(
    init, update, evaluate, lambda step: windows.batch_at(step, rows)
  )


def make_init(
  config: Config, vocabulary_size: int
) -> Callable[[], training.TrainState]:
  """What makes the state of step 0."""
  optimizer = training.make_optimizer(config.optimizer)
  model = make_evaluated(config, vocabulary_size)
  cross_entropy = make_loss(config, vocabulary_size)

  def init():
    base_key, init_key = jax.random.split(jax.random.key(config.seed))
    state = model.initial_state(config.batch_size)
    batch = np.zeros((config.batch_size, 1), np.int32)
    reset = np.zeros(config.batch_size, bool)
    params = cross_entropy.init(init_key, batch, batch, state, reset)
    return training.create_state(params, state, optimizer, base_key)

  return init


def make_loss(config: Config, vocabulary_size: int) -> hk.Transformed:
  """(inputs, targets, state, reset) -> (loss, weight), state; in training."""

  @hk.transform
  def cross_entropy(inputs, targets, state, reset):
    network = make_model(config, vocabulary_size)
    hidden, state = network(inputs, state, reset, is_training=True)
    loss = network.cross_entropy(hidden, targets, is_training=True)
    return loss, state

  return cross_entropy


def make_evaluated(config: Config, vocabulary_size: int) -> perplexity.Model:
  """The model with dropout off and the exact softmax."""

  @hk.without_apply_rng
  @hk.transform
  def log_probs(inputs, targets, state):
    network = make_model(config, vocabulary_size)
    hidden, state = network(inputs, state)
    return network.log_probs(hidden, targets), state

  @hk.without_apply_rng
  @hk.transform
  def initial_state(batch_size):
    return make_model(config, vocabulary_size).initial_state(batch_size)

  return perplexity.Model(
    log_probs.apply, lambda batch_size: initial_state.apply({}, batch_size)
  )


def make_reader(config: Config, vocabulary_size: int, params) -> Read:
  """The model word by word, for `generate`."""

  @hk.without_apply_rng
  @hk.transform
  def next_word(word, state):
    network = make_model(config, vocabulary_size)
    hidden, state = network(word[None, None], state)
    return network.all_log_probs(hidden[0, 0]), state

  return functools.partial(jax.jit(next_word.apply), params)


def local(params):
  """The parameters on one device of this process."""
  return jax.tree.map(lambda leaf: leaf.addressable_data(0), params)


def train(config: Config, workdir: pathlib.Path) -> None:
  """Trains, evaluates and prints; resumes what it finds in `workdir`."""
  try:
    corpus = _open(config)
    functions = make_functions(config, corpus)
    distributed.check_same('text', json.dumps(identity(corpus)))
    hold_to(workdir, corpus)
  except (PermissionError, ValueError) as error:
    raise ConfigurationError(str(error)) from error
  if distributed.is_primary():
    say(_describe(config, corpus, functions))
  state = training.train(
    workdir,
    init=functions.init,
    update=functions.update,
    evaluate=functions.evaluate,
    batch_at=functions.batch_at,
    num_steps=config.num_steps,
    log_every=config.log_every,
    eval_every=config.eval_every,
    checkpoint_every=config.checkpoint_every,
    keep_checkpoints=config.keep_checkpoints,
    check_replicas_every=config.check_replicas_every,
    nonfinite=config.nonfinite,
  )
  params = local(state.params)
  with Preemption() as preemption:
    # In every process: none then waits for another longer than it may.
    summary = perplexity.summary(
      make_evaluated(config, corpus.vocabulary.size),
      params,
      corpus.ids,
      corpus.vocabulary,
      window=config.window,
      lengths=config.eval_lengths,
      tell=make_tell(preemption),
    )
  if distributed.is_primary():
    text = json.dumps(summary, indent=1)
    files.atomic_write(workdir / analysis.SUMMARY, text.encode())
    analysis.save_samples(workdir, write_samples(config, corpus, params))
    if config.core.name in ATTENDING:
      record_reading(config, corpus, params, workdir)
    print(analysis.report(workdir))


def _open(config: Config) -> Corpus:
  """The corpus; the first time that takes long, and may be asked to stop."""
  with Preemption() as preemption:

    def beat():
      watchdog.beat()
      # Processes of a job may do more and less of it, and could not agree.
      if jax.process_count() == 1 and preemption.requested():
        raise Preempted(
          'Stopped while the text was made ready. The same command begins '
          'that anew.'
        )

    corpus = open_corpus(
      config.corpus,
      config.data_dir,
      config.vocabulary_size,
      config.lower_case,
      beat,
    )
    beat()
  return corpus


def _describe(config: Config, corpus: Corpus, functions: Functions) -> str:
  state = jax.eval_shape(functions.init)
  return (
    f'{config.corpus}: {len(corpus.ids["train"]):,} words to learn from, of '
    f'{corpus.vocabulary.size:,} different ones; {config.core.name}, '
    f'{training.count_parameters(state.params):,} parameters; '
    f'{jax.device_count()} devices'
  )


def make_tell(
  preemption: Preemption, seconds_between_lines: float = 10.0
) -> perplexity.Tell:
  """Says how far the evaluation is, to the watchdog and on the console.

  Raises, from what is returned:
    Preempted: a signal asked to stop.
  """
  last_line = time.monotonic()

  def tell(what, done, total):
    nonlocal last_line
    watchdog.beat()
    if preemption.requested():
      raise Preempted(
        f'Stopped while measuring, {what}: {done:,} of {total:,} words. What '
        'was trained is saved; the same command measures again.'
      )
    now = time.monotonic()
    if distributed.is_primary() and now - last_line >= seconds_between_lines:
      last_line = now
      say(f'{what}: {done:,} of {total:,} words')

  return tell


def write_samples(config: Config, corpus: Corpus, params) -> list[str]:
  """Three texts of some fifty words, as the model likes them."""
  size = corpus.vocabulary.size
  read = make_reader(config, size, params)
  state = make_evaluated(config, size).initial_state(1)
  return [
    ' '.join(
      generate(
        read,
        state,
        corpus.vocabulary,
        [],
        50,
        temperature=0.8,
        top_k=min(40, size),
        seed=seed,
      )
    )
    for seed in range(3)
  ]


def record_reading(
  config: Config, corpus: Corpus, params, workdir: pathlib.Path
) -> None:
  """Saves what the core does with some words of 'valid', for `analysis`."""
  size = corpus.vocabulary.size
  ids = np.asarray(corpus.ids['valid'][:40], np.int32)

  @hk.without_apply_rng
  @hk.transform
  def trace(inputs):
    network = make_model(config, size)
    return network.trace(inputs, network.initial_state(1))

  steps = jax.jit(trace.apply)(params, ids[None])
  analysis.save_reading(
    workdir,
    words=corpus.vocabulary.decode(ids),
    attention=steps.attention[:, 0, 0],  # [T, H, N, N + 1]
    gates={name: gate[:, 0] for name, gate in steps.gates.items()},
  )


if __name__ == '__main__':
  command_line.main(
    train,
    Config,
    sweep.PRESETS,
    experiment='language_modeling',
    preset='quick',
  )
