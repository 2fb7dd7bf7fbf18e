"""Trains memory networks that choose statements on bAbI.

The baselines of Sukhbaatar et al. 2015, table 1, mean test error with 1,000
training questions per task:

  facts      6.7  MemNN: trained to choose the statements that support the
                  answer, which the files name ("strongly supervised")
  heuristic 40.2  MemNN-WSH: trained to choose statements that share words with
                  the question and the answer ("weakly supervised heuristic")

  python -m rmc_jax.datasets.prepare babi/en
  python -m experiments.babi_memory_network.train         # quick, minutes
  python -m experiments.babi_memory_network.train --preset=facts
"""

import dataclasses

import haiku as hk
import jax.numpy as jnp

from experiments import command_line
from experiments.babi import analysis
from experiments.babi import members
from experiments.babi import results
from experiments.babi.padding import skip_padding
from experiments.babi.questions import example_batch
from experiments.babi.questions import open_sets
from experiments.babi.questions import TrainingSets
from experiments.babi_memory_network import facts
from experiments.babi_memory_network import heuristic
from experiments.babi_memory_network import sweep
from experiments.babi_memory_network.features import with_ngrams
from rmc_jax import metrics
from rmc_jax import training
from rmc_jax.checks import one_of
from rmc_jax.checks import positive_int
from rmc_jax.models.memory_network import choose_supporting
from rmc_jax.models.memory_network import MemoryNetwork
from rmc_jax.models.memory_network import prefer
from rmc_jax.models.memory_network import ranking_loss
from rmc_jax.types import Array


@dataclasses.dataclass
class Config:
  """One run."""

  version: str = 'en'  # 'en-10k': 10,000 training questions per task
  data_dir: str = training.may_change_on_resume(default='data')
  tasks: tuple[int, ...] = tuple(range(1, 21))
  restarts: int = 4  # initial values per task
  supervision: str = 'facts'  # or 'heuristic'
  ngrams: int = 3  # words of the longest n-grams
  embedding_size: int = 50
  num_hops: int = 9  # 'heuristic' has 2
  margin: float = 0.1
  init_stddev: float = 0.1
  batch_size: int = 32  # of each member
  optimizer: training.OptimizerConfig = dataclasses.field(
    default_factory=lambda: training.OptimizerConfig(learning_rate=5e-3)
  )
  run: training.RunConfig = dataclasses.field(
    default_factory=lambda: training.RunConfig(num_steps=840)
  )

  def validate(self) -> None:
    one_of('version', self.version, ('en', 'en-10k'))
    one_of('supervision', self.supervision, ('facts', 'heuristic'))
    for name in (
      'restarts',
      'ngrams',
      'batch_size',
      'num_hops',
      'embedding_size',
    ):
      positive_int(name, getattr(self, name))
    for task in self.tasks:
      one_of('tasks', task, range(1, 21))
    self.run.check_host_batches()


def make_network(config: Config, sets: TrainingSets) -> hk.Transformed:
  """(batch, choose) -> `memory_network.Output`; `sets` with n-grams."""
  by_facts = config.supervision == 'facts'
  vocabulary = int(sets.sizes[:, 0].max())
  # Training has all n-grams, and a split may lack words.
  largest = max(sets.train.story.max(), sets.train.question.max())
  num_features = max(vocabulary, 1 + int(largest))

  def forward(batch, choose=None):
    model = MemoryNetwork(
      num_features,
      vocabulary,
      config.embedding_size,
      config.num_hops if by_facts else heuristic.NUM_HOPS,
      adaptive=by_facts,
      init_stddev=config.init_stddev,
    )
    return model(batch['story'], batch['question'], choose)

  return hk.without_apply_rng(hk.transform(forward))


def make_loss_fn(config: Config, sets: TrainingSets, network: hk.Transformed):
  """Makes the ranking loss of a member: statements, and the answer."""

  def loss_and_logits(params, batch):
    if config.supervision == 'facts':
      output = network.apply(
        params, batch, choose_supporting(batch['supporting'])
      )
      positive = facts.in_order(batch['supporting'], config.num_hops)
    else:
      output = network.apply(params, batch, heuristic.choose_valid(batch))
      positive = heuristic.valid(batch, output.chosen)
    negative = output.possible & ~positive
    positive &= output.possible
    statements = ranking_loss(
      prefer(output.score, output.newer), positive, negative, config.margin
    ).sum(-1)  # [B]
    return statements + answer_loss(config, output.logits, batch), output.logits

  short = skip_padding(
    hk.Transformed(network.init, loss_and_logits), sets.sizes
  )

  def loss_fn(params, network_state, carry, key, batch):
    del key  # The network has no dropout.
    loss, logits = short.apply(params, batch)
    accuracy = {'accuracy': metrics.accuracy(logits, batch['answer'])}
    weight = jnp.asarray(len(loss), jnp.float32)
    return loss.sum(), training.LossAux(weight, accuracy, network_state, carry)

  return loss_fn


def answer_loss(
  config: Config, logits: Array, batch: dict[str, Array]
) -> Array:
  """Returns the ranking loss [B] of the answers among the task's symbols."""
  classes = jnp.arange(logits.shape[-1])[None]
  is_answer = classes == batch['answer'][:, None]  # [B, V]
  others = ~is_answer & (classes < batch['sizes'][:, :1])
  differences = logits[:, :, None] - logits[:, None]  # [B, V, V]
  return ranking_loss(differences, is_answer, others, config.margin)


def make_evaluate(config: Config, sets: TrainingSets) -> results.Evaluate:
  """Evaluation with the statements that the members choose themselves."""
  network = make_network(config, sets)
  logits = skip_padding(
    hk.Transformed(
      network.init, lambda params, batch: network.apply(params, batch).logits
    ),
    sets.sizes,
  )
  return results.make_evaluate(
    lambda member, batch: logits.apply(member.params, batch),
    sets,
    config.restarts,
  )


def make_experiment(config: Config, sets: TrainingSets) -> training.Experiment:
  """Binds questions, model, loss, optimiser and evaluation together."""
  network = make_network(config, sets)
  example = example_batch(sets)
  return members.make_experiment(
    config,
    sets,
    lambda key: (network.init(key, example), {}),
    make_loss_fn(config, sets, network),
    training.make_optimizer(config.optimizer),
    make_evaluate(config, sets),
  )


def train(config: Config, runner: training.Runner) -> None:
  """Trains, evaluates and draws; resumes a run in the workdir."""
  words = open_sets(config.version, config.tasks, False, config.data_dir)
  if config.supervision == 'facts':
    facts.check(words)
  sets = with_ngrams(words, config.ngrams)
  state = runner.train(make_experiment(config, sets), config.run)
  evaluate = make_evaluate(config, sets)
  results.write(runner, sets, evaluate, state, config.restarts)
  if runner.is_primary:
    print(analysis.report(runner.workdir))


if __name__ == '__main__':
  command_line.main(train, Config, sweep.PRESETS, 'babi_memory_network')
