"""Everything that is timed with `rmc_jax.training` or with an experiment.

The request's `program` selects one of `_PROGRAMS`.
"""

import functools
import itertools

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np

from experiments import configuration
from experiments.babi import train as babi
from experiments.babi.questions import in_order
from experiments.babi.questions import TrainingSets
from experiments.benchmarks import counts
from experiments.benchmarks.sizes import Size
from experiments.benchmarks.workers import jax_worker
from experiments.benchmarks.workers import serve
from experiments.box_world import train as box_world
from experiments.language_modeling import train as language_modeling
from experiments.language_modeling.corpus import Corpus
from experiments.learn_to_execute import train as learn_to_execute
from experiments.mini_pacman import train as mini_pacman
from experiments.nth_farthest import train as nth_farthest
import rmc_jax
from rmc_jax import metrics
from rmc_jax import rl
from rmc_jax import training
from rmc_jax.tasks.babi import Questions
from rmc_jax.tasks.language.vocabulary import Vocabulary
from rmc_jax.tasks.learn_to_execute import sample
from rmc_jax.training import distributed
from rmc_jax.training import parallel
from rmc_jax.training.update import make_step

# Reading one batch is too short to be timed.
_BATCHES_READ = 100


def load(request, arrays=None):
  """Joins the job, if there are several processes, and loads the program."""
  del arrays
  if request.get('processes', 1) > 1:
    distributed.initialize(
      request['coordinator'], request['processes'], request['process']
    )
  return jax_worker.program(*_PROGRAMS[request['program']](request))


def _update(request):
  """Updates a core on one global batch, the same in every layout."""
  size = Size(**request['size'])

  def forward(inputs):
    core = rmc_jax.RelationalMemory(**size.arguments())
    state = core.initial_state(len(inputs))
    return rmc_jax.unroll(core, inputs, state, time_major=False)[0]

  network = hk.without_apply_rng(hk.transform(forward))
  shape = (size.batch, size.steps, size.features)
  inputs = np.random.default_rng(0).standard_normal(shape, np.float32)
  optimizer = training.make_optimizer(training.OptimizerConfig())
  params = jax.jit(network.init)(jax.random.key(1), inputs[:1])
  state = training.create_state(params, {}, optimizer, jax.random.key(2))

  def loss_fn(params, network_state, carry, key, batch):
    del key
    squares = jnp.square(network.apply(params, batch))  # [B, T, N * D]
    loss, weight = squares.mean((1, 2)).sum(), jnp.float32(len(batch))
    return loss, training.LossAux(weight, {}, network_state, carry)

  if request['mapped']:
    devices = _devices(request['devices'])
    state = parallel.place_state(state, devices)
    rows = parallel.process_rows(size.batch, devices)
    batch = parallel.split_batch(inputs[rows], devices)
    run = training.make_update(
      loss_fn, optimizer, global_batch_size=size.batch, devices=devices
    )
  else:
    # The same step, without an axis of devices.
    state, batch = jax.device_put((state, inputs))
    run = jax.jit(
      make_step(loss_fn, optimizer, batch_size=size.batch), donate_argnums=0
    )
  losses = []

  def step():
    nonlocal state
    state, sums = run(state, batch)
    loss, weight = sums['loss']
    losses.append(float(loss / weight))  # Blocks, as a log does.
    jax.block_until_ready(state)

  def results():
    while len(losses) < 2:  # The second loss depends on the gradient.
      step()
    return {'losses': np.array(losses[:2])}

  return step, {}, results


def _all_reduce(request):
  """Sums over the devices an array as large as the gradient of a core."""
  devices = _devices(request['devices'])
  count = counts.parameters(Size(**request['size']))
  ones = np.ones((len(devices) // request['processes'], count), np.float32)
  batch = parallel.split_batch(ones, devices)
  scale = parallel.replicate(np.float32(1), devices)
  total = parallel.parallel_map(
    lambda scale, carry, batch: (scale * batch[0], carry), devices
  )

  def step():
    return jax.block_until_ready(total(scale, (), batch)[0])

  return step, {}, lambda: {'sum': np.asarray(step())}


def _devices(count):
  devices = jax.devices()
  if len(devices) < count:
    raise RuntimeError(
      f'devices is {count}; there are {len(devices)}. Choose fewer --devices.'
    )
  return devices[:count]


def _generated(experiment, request):
  """Trains on data that is generated inside the update."""
  config = make_config(experiment.Config, request['preset'])
  return _train(config, experiment.make_experiment(config))


def _samples_pipeline(request):
  """Generates batches of samples on one device."""
  config = make_config(learn_to_execute.Config, request['preset'])
  task = learn_to_execute.make_task(config)
  curriculum = learn_to_execute.make_curriculum(config)
  state = curriculum.initial_state()

  def one(key):
    difficulty_key, sample_key = jax.random.split(key)
    difficulty = curriculum.sample_difficulty(state, difficulty_key)
    return sample(sample_key, task, difficulty)

  @jax.jit
  def make_batch(key):
    return jax.vmap(one)(jax.random.split(key, config.batch_size))

  keys = map(jax.random.key, itertools.count())
  return (
    lambda: jax.block_until_ready(make_batch(next(keys))),
    {'items': config.batch_size, 'batches': 1},
  )


def _agent(request):
  """Trains an agent or, as a pipeline, only plays."""
  page = GAMES[request['game']]
  config = make_config(page.Config, request['preset'])
  experiment = page.make_experiment(config)
  length = config.agent.unroll_length
  if request['program'] == 'agent':
    return _train(config, experiment, items_per_example=length)
  state = parallel.place_state(jax.jit(experiment.init)())
  rollout = rl.make_rollout(*page.make_parts(config), agent=config.agent)
  rows = config.batch_size // jax.device_count()

  def play(replicated, carry, batch):
    del batch
    index = jax.lax.axis_index(parallel.AXIS) * rows + jnp.arange(rows)
    trajectory, carry = rollout.make_batch(
      replicated.params, replicated.network_state, carry, replicated.key, index
    )
    # Of all arrays, so that XLA computes them.
    sums = [leaf.sum() for leaf in jax.tree.leaves(trajectory)]
    return sums, carry

  mapped = parallel.parallel_map(play)
  replicated, carry = state._replace(carry=()), state.carry

  def step():
    nonlocal carry
    sums, carry = jax.block_until_ready(mapped(replicated, carry, None))
    del sums

  return step, {'items': config.batch_size * length, 'batches': 1}


def _text(request):
  """Trains a language model or, as a pipeline, only reads its batches."""
  config = make_config(language_modeling.Config, request['preset'])
  ids = np.memmap(request['path'], request['dtype'], 'r')
  size = request['vocabulary_size']
  words = '<eos>', '<unk>', *(f'w{rank}' for rank in range(2, size))
  frequencies = tuple(len(ids) // (1 + rank) for rank in range(size))
  corpus = Corpus(Vocabulary(words, frequencies), {'train': ids})
  source = language_modeling.make_source(config, corpus)
  batches = map(source.batch, itertools.count())
  if request['program'] == 'text':
    experiment = language_modeling.make_experiment(config, corpus)
    batches = map(parallel.split_batch, batches)
    return _train(config, experiment, batches, config.window)

  def read():
    for _ in range(_BATCHES_READ):
      next(batches)

  items = _BATCHES_READ * config.batch_size * config.window
  return read, {'items': items, 'batches': _BATCHES_READ}


def _babi(request):
  """Trains the members of an ensemble of memory networks."""
  arrays = np.load(request['arrays'])
  train = Questions(
    *(arrays[name] for name in ('story', 'length', 'question', 'answer')),
    supporting=np.zeros(arrays['story'].shape[:-1], np.uint8),
  )
  names = tuple(f'task {g}' for g in range(len(arrays['sizes'])))
  sets = TrainingSets(
    names,
    vocabularies=(),
    sizes=arrays['sizes'],
    train=train,
    valid=train,
    test=train,
    test_task=np.zeros(0),
  )
  config = babi.Config(restarts=request['restarts'], clip_norm='frobenius')
  experiment = babi.make_experiment(config, sets)
  tables = {f'embedding_{k}': w for k, w in enumerate(arrays['weights'])}

  def results():
    """Returns loss and gradients of one member of each set."""
    loss_fn = babi.make_loss_fn(babi.make_network(config, sets))
    batch = next(in_order(sets, train, 1, slice(0, len(names))))
    batch = jax.tree.map(lambda leaf: leaf[:, : config.batch_size], batch)

    def evaluate(params, batch):
      state = {'linear': jnp.array(False)}
      return loss_fn(params, state, (), None, batch)[0]

    each = jax.jit(jax.vmap(jax.value_and_grad(evaluate), (None, 0)))
    loss, gradients = each({'memn2n': tables}, batch)
    gradients = [gradients['memn2n'][name] for name in tables]
    return {'loss': loss, 'gradients': np.stack(gradients, axis=1)}

  members = len(names) * config.restarts
  assert experiment.source is not None
  batches = map(experiment.source.batch, itertools.count())
  batches = map(parallel.split_batch, batches)
  step, facts, _ = _train(config, experiment, batches, members)
  return step, facts, results


GAMES = {'box_world': box_world, 'mini_pacman': mini_pacman}
_PROGRAMS = {
  'agent': _agent,
  'agent_pipeline': _agent,
  'babi': _babi,
  'update': _update,
  'all_reduce': _all_reduce,
  'nth_farthest': functools.partial(_generated, nth_farthest),
  'samples': functools.partial(_generated, learn_to_execute),
  'samples_pipeline': _samples_pipeline,
  'text': _text,
  'text_pipeline': _text,
}


def _train(config, experiment, batches=None, items_per_example=1):
  """Updates step by step, and reads the metrics as the training loop does."""
  state = parallel.place_state(jax.jit(experiment.init)())
  parameters = np.array(training.count_parameters(state.params))
  updates = config.run.updates_per_call

  def step():
    nonlocal state
    state, sums = experiment.update(state, next(batches) if batches else None)
    means = metrics.divide(sums)  # Blocks.
    if np.any(means['nonfinite']):
      raise FloatingPointError(f'An update is not finite: {means}.')

  items = updates * config.batch_size * items_per_example
  facts = {'items': items, 'batches': updates}
  return step, facts, lambda: {'parameters': parameters}


def make_config(config_class, preset):
  """Returns the valid configuration of a preset that has been JSON."""
  preset = {  # JSON has no tuples.
    name: tuple(value) if isinstance(value, list) else value
    for name, value in preset.items()
  }
  config = configuration.with_preset(config_class, {'': preset}, '')
  configuration.validate(config)
  return config


if __name__ == '__main__':
  serve.serve(load)
