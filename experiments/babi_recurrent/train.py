"""Trains recurrent cores on bAbI, next to the memory networks of `babi`.

A core reads a statement per step, and the question last. Members, splits,
selection and table are those of `experiments.babi`. No published table has
these models: the LSTM of Weston et al. 2015, which reads word by word, has a
mean test error of 51.3 % with 1,000 training questions per task, and 36.4 %
with 10,000.

  python -m rmc_jax.datasets.prepare babi/en
  python -m experiments.babi_recurrent.train              # quick, minutes
  python -m experiments.babi_recurrent.train --preset=lstm_10k
"""

import dataclasses

import haiku as hk

from experiments import command_line
from experiments.babi import analysis
from experiments.babi import members
from experiments.babi import results
from experiments.babi.padding import skip_padding
from experiments.babi.questions import example_batch
from experiments.babi.questions import open_sets
from experiments.babi.questions import TrainingSets
from experiments.babi_recurrent import sweep
from rmc_jax import losses
from rmc_jax import metrics
from rmc_jax import training
from rmc_jax.checks import one_of
from rmc_jax.checks import positive_int
from rmc_jax.cores.build import build_core
from rmc_jax.cores.config import CoreConfig
from rmc_jax.cores.relational_memory import RelationalMemoryConfig
from rmc_jax.models import QuestionAnswering
from rmc_jax.models.memn2n import Sizes


@dataclasses.dataclass
class Config:
  """One run of one core."""

  version: str = 'en'  # 'en-10k': 10,000 training questions per task
  data_dir: str = training.may_change_on_resume(default='data')
  tasks: tuple[int, ...] = tuple(range(1, 21))
  joint: bool = False  # one model for all tasks
  restarts: int = 4  # initial values per training set
  core: CoreConfig = dataclasses.field(default_factory=RelationalMemoryConfig)
  embedding_size: int = 64  # of a word, and of the core's inputs
  hidden_sizes: tuple[int, ...] = (128,)  # of the read-out MLP
  batch_size: int = 32  # of each member
  optimizer: training.OptimizerConfig = dataclasses.field(
    default_factory=lambda: training.OptimizerConfig(learning_rate=1e-3)
  )
  run: training.RunConfig = dataclasses.field(
    default_factory=lambda: training.RunConfig(num_steps=2800)
  )

  def validate(self) -> None:
    one_of('version', self.version, ('en', 'en-10k'))
    for name in ('restarts', 'batch_size'):
      positive_int(name, getattr(self, name))
    for task in self.tasks:
      one_of('tasks', task, range(1, 21))
    self.run.check_host_batches()
    # Raises what the model's constructor would raise.
    hk.transform(lambda: make_model(self, Sizes(2, 1, 1)) and None).init(None)


def make_model(config: Config, sizes: Sizes) -> QuestionAnswering:
  """The model, inside an `hk.transform`; `sizes` of the largest task."""
  return QuestionAnswering(
    build_core(config.core),
    sizes.vocabulary,
    config.embedding_size,
    config.hidden_sizes,
  )


def make_network(config: Config, sets: TrainingSets) -> hk.Transformed:
  """batch -> logits [B, C]."""
  largest = Sizes(*map(int, sets.sizes.max(0)))

  def forward(batch):
    return make_model(config, largest)(
      batch['story'], batch['question'], Sizes(*batch['sizes'][0])
    )

  network = hk.without_apply_rng(hk.transform(forward))
  return skip_padding(network, sets.sizes, split=False)


def make_experiment(config: Config, sets: TrainingSets) -> training.Experiment:
  """Binds questions, model, loss, optimiser and evaluation together."""
  network = make_network(config, sets)
  example = example_batch(sets)

  def loss_fn(params, network_state, carry, key, batch):
    del key  # The network has no dropout.
    logits = network.apply(params, batch)
    loss, weight = losses.softmax_cross_entropy(logits, batch['answer'])
    accuracy = {'accuracy': metrics.accuracy(logits, batch['answer'])}
    return loss, training.LossAux(weight, accuracy, network_state, carry)

  return members.make_experiment(
    config,
    sets,
    lambda key: (network.init(key, example), {}),
    loss_fn,
    training.make_optimizer(config.optimizer),
    make_evaluate(config, sets),
  )


def make_evaluate(config: Config, sets: TrainingSets) -> results.Evaluate:
  """Evaluation of every member on a split of its set."""
  network = make_network(config, sets)
  return results.make_evaluate(
    lambda member, batch: network.apply(member.params, batch),
    sets,
    config.restarts,
  )


def train(config: Config, runner: training.Runner) -> None:
  """Trains, evaluates and draws; resumes a run in the workdir."""
  sets = open_sets(config.version, config.tasks, config.joint, config.data_dir)
  state = runner.train(make_experiment(config, sets), config.run)
  evaluate = make_evaluate(config, sets)
  results.write(runner, sets, evaluate, state, config.restarts)
  if runner.is_primary:
    print(analysis.report(runner.workdir))


if __name__ == '__main__':
  command_line.main(train, Config, sweep.PRESETS, 'babi_recurrent')
