"""Trains program evaluation: Santoro et al. 2018, section 5.2, table 1.

The model reads a small program character by character and writes its result.
The paper's accuracy per character at length 5, nesting 2; analysis.py has all:

         addition  control  program
  LSTM       99.8     97.4     66.1
  RMC        99.9     99.6     79.0

  python -m experiments.learn_to_execute.train                # quick, minutes
  python -m experiments.learn_to_execute.train --preset=program_lstm_1024

Departures: "control" is 'algebra_control', decoder inputs are zeros as in the
authors' code (docs/tasks.md says why), and gradients are clipped.
"""

import dataclasses

import haiku as hk
import jax
import jax.numpy as jnp

from experiments import command_line
from experiments.learn_to_execute import analysis
from experiments.learn_to_execute import sweep
from rmc_jax import checks
from rmc_jax import losses
from rmc_jax import metrics
from rmc_jax import training
from rmc_jax.cores.build import build_core
from rmc_jax.cores.config import CoreConfig
from rmc_jax.cores.relational_memory import RelationalMemoryConfig
from rmc_jax.models import encoder_decoder
from rmc_jax.tasks import learn_to_execute
from rmc_jax.tasks.learn_to_execute.describe import describe


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
  curriculum_window: int = 10  # naive, combine: losses compared
  core: CoreConfig = dataclasses.field(default_factory=RelationalMemoryConfig)
  own_decoder_core: bool = False  # else one core, and its weights, does both
  hidden_sizes: tuple[int, ...] = (256, 256, 256, 256)  # of the read-out MLP
  train_feed: str = 'zeros'  # decoder inputs: 'zeros', 'teacher_forcing' or
  eval_feed: str = 'zeros'  # 'predictions', as in the paper
  remat: bool = False  # recompute steps in the backward pass: less memory
  batch_size: int = 128  # over all devices
  optimizer: training.OptimizerConfig = dataclasses.field(
    default_factory=lambda: training.OptimizerConfig(learning_rate=1e-3)
  )
  eval_examples: int = 12_800  # of the largest length and nesting
  run: training.RunConfig = dataclasses.field(
    default_factory=lambda: training.RunConfig(num_steps=200_000)
  )

  def validate(self) -> None:
    make_task(self)
    make_curriculum(self)
    checks.one_of('train_feed', self.train_feed, encoder_decoder.FEEDS)
    checks.one_of('eval_feed', self.eval_feed, encoder_decoder.FEEDS)
    checks.positive_int('eval_examples', self.eval_examples)
    for i, size in enumerate(self.hidden_sizes):
      checks.positive_int(f'hidden_sizes[{i}]', size)


def make_task(config: Config) -> learn_to_execute.Task:
  """The task; raises ValueError for invalid fields."""
  return learn_to_execute.Task(
    name=config.task,
    max_length=config.max_length,
    max_nesting=config.max_nesting,
    grammar=config.grammar,
    tokens=config.tokens,
    num_integers=config.num_integers,
  )


def make_curriculum(config: Config) -> learn_to_execute.Curriculum:
  """The curriculum; raises ValueError for invalid fields."""
  return learn_to_execute.Curriculum(
    config.curriculum,
    max_length=config.max_length,
    max_nesting=config.max_nesting,
    threshold=config.curriculum_threshold,
    window=config.curriculum_window,
  )


def make_network(config: Config) -> hk.Transformed:
  """Core and read-out MLP: (batch, feed) -> logits [B, T_out, C]."""

  def network(batch, feed):
    vocabulary = make_task(config).vocabulary
    model = encoder_decoder.EncoderDecoder(
      build_core(config.core),
      vocabulary.size,
      vocabulary.start,
      config.hidden_sizes,
      build_core(config.core) if config.own_decoder_core else None,
      config.remat,
    )
    return model(batch.inputs, batch.input_length, batch.targets, feed)

  return hk.without_apply_rng(hk.transform(network))


def make_experiment(config: Config) -> training.Experiment:
  """Binds task, model, loss, optimiser and evaluation together."""
  task, curriculum = make_task(config), make_curriculum(config)
  network = make_network(config)
  optimizer = training.make_optimizer(config.optimizer)
  init_key, train_key, eval_key, _ = config.run.make_keys()

  def init():
    example = learn_to_execute.sample(init_key, task)
    batch = jax.tree.map(lambda x: x[None], example)
    params = network.init(init_key, batch, config.train_feed)
    difficulty = curriculum.initial_state()
    return training.create_state(params, difficulty, optimizer, train_key)

  def sample(key, state):
    difficulty_key, sample_key = jax.random.split(key)
    difficulty = curriculum.sample_difficulty(state, difficulty_key)
    return learn_to_execute.sample(sample_key, task, difficulty)

  def loss_fn(params, state, carry, key, batch):
    del key  # The network has no dropout.
    logits = network.apply(params, batch, config.train_feed)
    answers = logits, batch.targets, batch.target_mask  # [B, T_out, ...]
    loss, weight = losses.softmax_cross_entropy(*answers)
    reported = {
      'accuracy': metrics.accuracy(*answers),
      'curriculum_length': (state.difficulty.length, 1),
      'curriculum_nesting': (state.difficulty.nesting, 1),
    }
    return loss, training.LossAux(weight, reported, state, carry)

  def after_update(state, reported):
    loss, weight = reported['loss']
    return curriculum.update(state, loss / weight)

  def metric_fn(params, state, batch):
    del state  # Evaluation is at the largest length and nesting.
    logits = network.apply(params, batch, config.eval_feed)
    answers = logits, batch.targets, batch.target_mask
    hits, count = jax.vmap(metrics.accuracy)(*answers)  # [B]
    return {
      'loss': jax.vmap(losses.softmax_cross_entropy)(*answers),
      'accuracy': (hits, count),
      'sequence_accuracy': (jnp.float32(hits == count), jnp.ones_like(count)),
    }

  return training.Experiment(
    init=init,
    update=training.make_update(
      loss_fn,
      optimizer,
      global_batch_size=config.batch_size,
      make_batch=training.per_example(sample),
      after_update=after_update,
      updates_per_call=config.run.updates_per_call,
    ),
    evaluate=training.make_evaluate_generated(
      metric_fn,
      lambda key: learn_to_execute.sample(key, task),
      eval_key,
      num_examples=config.eval_examples,
      global_batch_size=config.batch_size,
    ),
  )


def train(config: Config, runner: training.Runner) -> None:
  """Trains, evaluates and prints; resumes a run in the workdir."""
  state = runner.train(make_experiment(config), config.run)
  if not runner.is_primary:
    return
  # New samples of the largest length and nesting, with the model's answers.
  task = make_task(config)
  keys = jax.random.split(config.run.make_keys()[-1], config.batch_size)
  sample = jax.jit(jax.vmap(lambda key: learn_to_execute.sample(key, task)))
  batch = sample(keys)
  apply = jax.jit(make_network(config).apply, static_argnums=2)
  answers = apply(state.params, batch, config.eval_feed).argmax(-1)
  samples = describe(task, batch, answers, limit=8)
  (runner.workdir / analysis.SAMPLES).write_text(samples + '\n')
  print(analysis.report(runner.workdir))


if __name__ == '__main__':
  command_line.main(train, Config, sweep.PRESETS, 'learn_to_execute')
