"""Trains end-to-end memory networks on bAbI: Sukhbaatar et al. 2015, table 1.

Each task is trained from several initial values, all at once as members of one
ensemble; the run with the lowest training error counts, and its attention on
test questions is drawn as in figure 2. Mean test error over the 20 tasks in the
paper, with 1,000 training questions:

  BoW 25.1   PE 20.3   PE LS 16.3   PE LS RN 13.9   joint, PE LS RN 12.4

  python -m rmc_jax.datasets.prepare babi/en
  python -m experiments.babi.train                        # quick, minutes
  python -m experiments.babi.train --preset=pe_ls_rn

docs/babi.md lists the departures, and explains the differences in error.
"""

import dataclasses

import haiku as hk
import optax

from experiments import command_line
from experiments.babi import analysis
from experiments.babi import examples
from experiments.babi import linear_start
from experiments.babi import members
from experiments.babi import questions
from experiments.babi import results
from experiments.babi import sweep
from experiments.babi.padding import skip_padding
from experiments.babi.questions import TrainingSets
from rmc_jax import losses
from rmc_jax import metrics
from rmc_jax import training
from rmc_jax.checks import one_of
from rmc_jax.checks import positive_int
from rmc_jax.models import MemN2N
from rmc_jax.models.memn2n import Sizes


@dataclasses.dataclass
class Config:
  """One run. The defaults are those of the paper's PE LS RN, task by task."""

  version: str = 'en'  # 'en-10k': 10,000 training questions per task
  data_dir: str = training.may_change_on_resume(default='data')
  tasks: tuple[int, ...] = tuple(range(1, 21))
  joint: bool = False  # one model for all tasks
  restarts: int = 10  # initial values per training set
  embedding_size: int = 20  # joint: 50
  num_hops: int = 3
  tying: str = 'adjacent'  # or 'layerwise'
  encoding: str = 'position'  # 'bow', 'paper_position'
  temporal: bool = True
  random_noise: float = 0.1  # gaps per statement in time; 0: none
  relu: bool = False  # on all units after each hop
  linear_start: str = 'fixed'  # 'none', 'validation'
  linear_epochs: int = 20  # 'fixed': epochs without softmax
  learning_rate: float = 0.01
  linear_start_rate: float = 0.005  # with a linear start, after it too
  halve_epochs: int = 25
  clip: float = 40.0  # norm of the gradient of each matrix
  clip_norm: str = 'spectral'  # as in the authors' code; 'frobenius'
  init_stddev: float = 0.1
  batch_size: int = 32  # of each member
  run: training.RunConfig = dataclasses.field(
    default_factory=lambda: training.RunConfig(num_steps=3360)
  )

  def validate(self) -> None:
    one_of('version', self.version, ('en', 'en-10k'))
    one_of('linear_start', self.linear_start, linear_start.KINDS)
    one_of('clip_norm', self.clip_norm, training.MATRIX_NORMS)
    for name in ('restarts', 'batch_size', 'linear_epochs', 'halve_epochs'):
      positive_int(name, getattr(self, name))
    for task in self.tasks:
      one_of('tasks', task, range(1, 21))
    self.run.check_host_batches()
    # Raises what the model's constructor would raise.
    hk.transform(lambda: make_model(self, Sizes(2, 1, 1)) and None).init(None)


def make_model(config: Config, sizes: Sizes) -> MemN2N:
  """The model, inside an `hk.transform`; `sizes` of the largest task."""
  return MemN2N(
    sizes.vocabulary,
    sizes.memory,
    config.embedding_size,
    config.num_hops,
    config.tying,
    config.encoding,
    config.temporal,
    num_relu=config.embedding_size if config.relu else 0,
    init_stddev=config.init_stddev,
  )


def make_network(config: Config, sets: TrainingSets) -> hk.Transformed:
  """(batch, linear) -> logits [B, C] and attention [B, K, M]."""
  largest = Sizes(*map(int, sets.sizes.max(0)))

  def forward(batch, linear):
    return make_model(config, largest)(
      batch['story'],
      batch['question'],
      batch['time'],
      linear=linear,
      sizes=Sizes(*batch['sizes'][0]),
    )

  network = hk.without_apply_rng(hk.transform(forward))
  return skip_padding(network, sets.sizes)


def make_optimizer(config: Config, epoch: int) -> optax.GradientTransformation:
  """Clipping per matrix and SGD, with a rate that is halved."""
  has_start = config.linear_start != 'none'
  rate = config.linear_start_rate if has_start else config.learning_rate
  schedule = optax.exponential_decay(
    rate, config.halve_epochs * epoch, decay_rate=0.5, staircase=True
  )
  return optax.chain(
    training.clip_by_matrix_norm(config.clip, config.clip_norm),
    optax.sgd(schedule),
  )


def epoch_size(config: Config, sets: TrainingSets) -> int:
  """Updates in an epoch; the rest of the questions is left out."""
  return sets.train.answer.shape[1] // config.batch_size


def make_loss_fn(network: hk.Transformed):
  """Makes the loss of one member."""

  def loss_fn(params, network_state, carry, key, batch):
    del key  # Noise in time comes with the batch.
    logits, _ = network.apply(params, batch, network_state['linear'])
    loss, weight = losses.softmax_cross_entropy(logits, batch['answer'])
    accuracy = {'accuracy': metrics.accuracy(logits, batch['answer'])}
    return loss, training.LossAux(weight, accuracy, network_state, carry)

  return loss_fn


def make_evaluate(config: Config, sets: TrainingSets) -> results.Evaluate:
  """Evaluation in which members in their linear start have no softmax."""
  network = make_network(config, sets)

  def apply(member, batch):
    logits, _ = network.apply(
      member.params, batch, member.network_state['linear']
    )
    return logits

  return results.make_evaluate(apply, sets, config.restarts)


def make_experiment(config: Config, sets: TrainingSets) -> training.Experiment:
  """Binds questions, model, loss, optimiser and evaluation together."""
  network = make_network(config, sets)
  example = questions.example_batch(sets)

  def init(key):
    start = linear_start.initial_state(config.linear_start)
    return network.init(key, example, False), start

  return members.make_experiment(
    config,
    sets,
    init,
    make_loss_fn(network),
    make_optimizer(config, epoch_size(config, sets)),
    make_evaluate(config, sets),
    reduction='sum',  # The paper does not average over the batch.
    random_noise=config.random_noise if config.temporal else 0.0,
    on_evaluation=lambda state, means: linear_start.end_epoch(
      config.linear_start, config.linear_epochs, state, means['loss']
    ),
  )


def train(config: Config, runner: training.Runner) -> None:
  """Trains, evaluates and draws; resumes a run in the workdir."""
  sets = questions.open_sets(
    config.version, config.tasks, config.joint, config.data_dir
  )
  epoch = epoch_size(config, sets)
  linear_start.check_interval(config.linear_start, config.run.eval_every, epoch)
  state = runner.train(make_experiment(config, sets), config.run)
  evaluate = make_evaluate(config, sets)
  errors = results.write(runner, sets, evaluate, state, config.restarts)
  examples.write(runner, make_network(config, sets), sets, state, errors)
  if runner.is_primary:
    print(analysis.report(runner.workdir))


if __name__ == '__main__':
  command_line.main(train, Config, sweep.PRESETS, 'babi')
