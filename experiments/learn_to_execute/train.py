"""Trains program evaluation: Santoro et al. 2018, section 5.2, table 1.

The model reads a small program character by character and writes its result.
The paper, per character, at length 5 and nesting 2:

            addition  control  program
  LSTM          99.8     97.4     66.1
  EntNet        98.4     98.0     73.4
  DNC           99.4     83.8     69.5
  RMC           99.9     99.6     79.0

  python -m experiments.learn_to_execute.train                # quick, minutes
  python -m experiments.learn_to_execute.train \
      --preset=program_rmc_4_slots_4_heads_1024               # an accelerator

docs/tasks.md explains the tasks and prints examples. Departures of the presets
from the paper: its "control" sample has + and if, so it stands for
'algebra_control' (+, -, if); 'control' (if, for) is in the authors' generator
too, see --config.task. The decoder sees zeros, as in the authors' code, where
the paper has it see what it wrote: --config.train_feed=predictions and
--config.eval_feed=predictions. Gradients are clipped, on which the paper is
silent.
"""

from collections.abc import Callable
import dataclasses
import pathlib
from typing import Any
from typing import NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp

from experiments import command_line
from experiments.learn_to_execute import analysis
from experiments.learn_to_execute import sweep
from rmc_jax import losses
from rmc_jax import metrics
from rmc_jax import training
from rmc_jax.cores.build import build_core
from rmc_jax.cores.config import CoreConfig
from rmc_jax.cores.memory_matrix import positive_int
from rmc_jax.cores.relational_memory import RelationalMemoryConfig
from rmc_jax.models import EncoderDecoder
from rmc_jax.models.encoder_decoder import FEEDS
from rmc_jax.tasks import learn_to_execute
from rmc_jax.tasks.learn_to_execute.curriculum import Curriculum
from rmc_jax.tasks.learn_to_execute.curriculum import CurriculumState
from rmc_jax.tasks.learn_to_execute.describe import describe
from rmc_jax.training import distributed


@dataclasses.dataclass
class Config:
  """One run. The defaults are the paper's, but for the core and the feeds."""

  task: str = 'addition'  # one of learn_to_execute.TASKS
  max_length: int = 5  # digits of an integer
  max_nesting: int = 2  # operations in a program; memorization: 1
  grammar: str = 'authors'  # their released generator; 'paper': figure 6
  tokens: str = 'characters'  # 'words': whole integers and keywords
  num_integers: int | None = None  # in the vocabulary of words; None: enough
  curriculum: str = 'mix'  # 'baseline', 'naive', 'combine'
  curriculum_threshold: float = 0.1  # naive, combine: see Curriculum
  curriculum_window: int = 10  # losses compared with the threshold
  core: CoreConfig = dataclasses.field(default_factory=CoreConfig)
  own_decoder_core: bool = False  # else one core, and its weights, does both
  hidden_sizes: tuple[int, ...] = (256, 256, 256, 256)  # of the read-out MLP
  train_feed: str = 'zeros'  # decoder inputs: 'zeros', 'teacher_forcing' or
  eval_feed: str = 'zeros'  # 'predictions', as in the paper
  remat: bool = False  # recompute steps in the backward pass: less memory
  batch_size: int = 128  # over all devices
  num_steps: int = 200_000  # updates
  optimizer: training.OptimizerConfig = dataclasses.field(
    default_factory=lambda: training.OptimizerConfig(learning_rate=1e-3)
  )
  seed: int = 0
  eval_examples: int = 12_800  # of the largest length and nesting
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
    make_task(self)
    try:
      make_curriculum(self)
    except ValueError as error:
      raise ValueError(f'curriculum: {error}') from error
    for name in ('train_feed', 'eval_feed'):
      if getattr(self, name) not in FEEDS:
        raise ValueError(
          f'{name} must be one of {", ".join(FEEDS)}. '
          f'Got: {getattr(self, name)!r}.'
        )
    positive_int('eval_examples', self.eval_examples)
    for i, size in enumerate(self.hidden_sizes):
      positive_int(f'hidden_sizes[{i}]', size)


def make_task(config: Config) -> learn_to_execute.Task:
  """What is asked of the model; raises ValueError for what makes no sense."""
  return learn_to_execute.Task(
    name=config.task,
    max_length=config.max_length,
    max_nesting=config.max_nesting,
    grammar=config.grammar,
    tokens=config.tokens,
    num_integers=config.num_integers,
  )


def make_curriculum(config: Config) -> Curriculum:
  """The difficulty of samples; raises ValueError for invalid settings."""
  return Curriculum(
    config.curriculum,
    max_length=config.max_length,
    max_nesting=config.max_nesting,
    threshold=config.curriculum_threshold,
    window=config.curriculum_window,
  )


def make_model(config: Config) -> EncoderDecoder:
  """Core, read-out MLP and logits, inside an `hk.transform`."""
  vocabulary = make_task(config).vocabulary
  core = build_core(config.core)
  return EncoderDecoder(
    core,
    vocabulary.size,
    vocabulary.start,
    config.hidden_sizes,
    decoder_core=build_core(config.core) if config.own_decoder_core else None,
    remat=config.remat,
  )


class PendingLoss(NamedTuple):
  """The curriculum, and the loss of the last update, not yet in it.

  The update averages the pending sums over the devices, so the next update can
  divide them to the mean loss of the whole batch.
  """

  curriculum: CurriculumState
  loss: jax.Array
  weight: jax.Array


def apply_pending(
  curriculum: Curriculum, state: PendingLoss
) -> CurriculumState:
  """Updates the curriculum; without a weight, as at first, it stays."""
  seen = state.weight > 0
  mean_loss = state.loss / jnp.where(seen, state.weight, 1.0)
  return jax.tree.map(
    lambda new, old: jnp.where(seen, new, old),
    curriculum.update(state.curriculum, mean_loss),
    state.curriculum,
  )


class Functions(NamedTuple):
  """What `training.train` calls; there is said what each of them does."""

  init: Callable[[], training.TrainState]
  update: Callable[..., Any]
  evaluate: Callable[..., Any]


def make_functions(config: Config) -> Functions:
  """Binds model, task, loss and optimiser together; computes nothing yet."""
  task, curriculum = make_task(config), make_curriculum(config)
  network = make_network(config)
  optimizer = training.make_optimizer(config.optimizer)
  base_key, init_key, train_key, eval_key, _ = _keys(config)

  def init():
    batch = jax.tree.map(
      lambda x: x[None], learn_to_execute.sample(init_key, task)
    )
    params = network.init(init_key, batch, config.train_feed)
    return training.create_state(
      params,
      PendingLoss(
        curriculum.initial_state(), jnp.float32(0.0), jnp.float32(0.0)
      ),
      optimizer,
      base_key,
    )

  def sample(key, state):
    difficulty_key, sample_key = jax.random.split(key)
    difficulty = curriculum.sample_difficulty(
      apply_pending(curriculum, state), difficulty_key
    )
    return learn_to_execute.sample(sample_key, task, difficulty)

  def loss_fn(params, state, key, batch):
    del key  # the network has no dropout
    logits = network.apply(params, batch, config.train_feed)
    mask = target_mask(batch)
    loss, weight = losses.softmax_cross_entropy(logits, batch.targets, mask)
    state = apply_pending(curriculum, state)
    difficulty = {
      f'curriculum_{name}': (value, 1)
      for name, value in state.difficulty._asdict().items()
    }
    return loss, training.LossAux(
      weight,
      {'accuracy': metrics.accuracy(logits, batch.targets, mask), **difficulty},
      PendingLoss(state, jnp.float32(loss), jnp.float32(weight)),
    )

  def metric_fn(params, state, batch):
    del state  # evaluation is at the largest length and nesting
    logits = network.apply(params, batch, config.eval_feed)
    answers = logits, batch.targets, target_mask(batch)
    correct, count = jax.vmap(metrics.accuracy)(*answers)
    return {
      'loss': jax.vmap(losses.softmax_cross_entropy)(*answers),
      'accuracy': (correct, count),
      'wholly_right': (
        (correct == count).astype(jnp.float32),
        jnp.ones_like(count),
      ),
    }

  update = training.make_update(
    loss_fn,
    optimizer,
    global_batch_size=config.batch_size,
    sample=sample,
    data_key=train_key,
    updates_per_call=config.updates_per_call,
  )
  evaluate = training.make_evaluate_generated(
    metric_fn,
    lambda key: learn_to_execute.sample(key, task),
    eval_key,
    num_examples=config.eval_examples,
    global_batch_size=config.batch_size,
  )
  return Functions(init, update, evaluate)


def make_network(config: Config) -> hk.Transformed:
  """(batch, feed) -> logits [B, T_out, vocabulary]."""
  return hk.without_apply_rng(
    hk.transform(
      lambda batch, feed: make_model(config)(
        batch.inputs, batch.input_length, batch.targets, feed
      )
    )
  )


def target_mask(batch: learn_to_execute.Example) -> jax.Array:
  """[B, T_out] booleans: which targets are of the answer and no padding."""
  steps = jnp.arange(batch.targets.shape[-1])
  return steps[None, :] < batch.target_length[:, None]


def train(config: Config, workdir: pathlib.Path) -> None:
  """Trains, evaluates and prints; resumes what it finds in `workdir`."""
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
    analysis.save_samples(workdir, describe_samples(config, state.params))
    print(analysis.report(workdir))


def describe_samples(config: Config, params) -> str:
  """Some fresh samples of the largest size, with what the model answers."""
  task = make_task(config)
  keys = jax.random.split(_keys(config)[-1], config.batch_size)
  batch = jax.vmap(lambda key: learn_to_execute.sample(key, task))(keys)
  apply = jax.jit(make_network(config).apply, static_argnums=2)
  predictions = apply(params, batch, config.eval_feed).argmax(-1)
  return describe(task, batch, predictions, limit=8)


def _keys(config: Config) -> jax.Array:
  """[5] keys: of the state, the weights, the data, evaluation and samples."""
  return jax.random.split(jax.random.key(config.seed), 5)


if __name__ == '__main__':
  command_line.main(
    train,
    Config,
    sweep.PRESETS,
    experiment='learn_to_execute',
    preset='quick',
  )
