"""Tests experiments/babi: questions, training, selection and table."""

import ast
import functools
import json

import jax
import numpy as np
import pytest

from experiments import configuration
from experiments.babi import analysis
from experiments.babi import hops
from experiments.babi import linear_start as lib
from experiments.babi import questions
from experiments.babi import sweep
from experiments.babi import train
from rmc_jax import training
from rmc_jax.training import parallel
from rmc_jax.training.ensemble import get_member
from tests.experiments.babi import runs
from tests.experiments.babi.runs import EPOCH
from tests.training import jobs

config_of = functools.partial(runs.config_of, train, sweep)


def short(data_dir, epochs=2, **fields):
  small = {'embedding_size': 5, 'num_hops': 2, 'linear_epochs': 1}
  return runs.shorten(
    config_of('pe_ls_rn'), data_dir, epochs, **(small | fields)
  )


def open_sets(config):
  return questions.open_sets(
    config.version, config.tasks, config.joint, config.data_dir
  )


@pytest.mark.parametrize('preset', sweep.PRESETS)
def test_presets_are_valid(preset):
  config = config_of(preset)
  configuration.validate(config)
  assert config.run.num_steps % config.run.eval_every == 0


def test_sweep_is_plain_data():
  assert ast.literal_eval(repr(sweep.PRESETS)) == sweep.PRESETS


def test_presets_are_the_papers():
  per_task = config_of('pe_ls_rn')
  assert per_task.run.num_steps == (20 + 100) * EPOCH
  assert (per_task.embedding_size, per_task.restarts) == (20, 10)
  assert (per_task.learning_rate, per_task.halve_epochs) == (0.01, 25)
  joint = config_of('joint_3_hops')
  assert joint.joint
  assert joint.embedding_size == 50
  assert joint.run.num_steps == (30 + 60) * (18_000 // 32)
  assert not config_of('bow').random_noise
  assert config_of('bow').encoding == 'bow'
  assert config_of('pe').linear_start == 'none'
  assert config_of('joint_layerwise').tying == 'layerwise'


def test_training_questions_are_the_first_nine_tenths(data_dir):
  sets = open_sets(short(data_dir))
  assert sets.names == ('task 2', 'task 15')
  assert sets.train.answer.shape == (2, 900)
  assert sets.valid.answer.shape == (2, 100)
  assert sets.test.answer.shape == (2, 1000)
  assert sets.sizes[:, 1].tolist() == [4, 4]
  assert (sets.test_task == [[2], [15]]).all()
  joint = open_sets(short(data_dir, joint=True))
  assert joint.names == ('joint',)
  assert joint.train.answer.shape == (1, 1800)
  assert np.unique(joint.test_task, return_counts=True)[1].tolist() == [
    1000,
    1000,
  ]


def test_batches_depend_on_seed_step_and_set(data_dir):
  sets = open_sets(short(data_dir))

  def batch(step, seed=0, noise=0.1, members=slice(0, 4)):
    source = questions.Batches(sets, 2, 32, seed, noise, members)
    return source.batch(step)

  first = batch(3)
  assert first['story'].shape == (4, 32, *sets.train.story.shape[2:])
  for name, leaf in batch(3, members=slice(2, 4)).items():
    np.testing.assert_array_equal(leaf, first[name][2:])
  assert (batch(4)['answer'] != first['answer']).any()
  assert (batch(3, seed=1)['answer'] != first['answer']).any()
  assert (first['answer'][0] != first['answer'][2]).any()
  is_statement = (first['story'] > 0).any(-1)
  np.testing.assert_array_equal(first['time'] > 0, is_statement)
  assert (np.diff(is_statement.sum(2), axis=1) >= 0).all()  # shortest first
  consecutive = batch(3, noise=0.0)['time']
  assert (first['time'] >= consecutive).all()
  assert (first['time'] != consecutive).any()
  assert (first['sizes'][3] == sets.sizes[1]).all()


@pytest.mark.parametrize('linear_start', ['fixed', 'validation', 'none'])
def test_softmax_returns_once_and_restarts_the_schedule(data_dir, linear_start):
  config = short(data_dir, linear_start=linear_start, linear_epochs=2)
  state = parallel.place_state(
    jax.jit(train.make_experiment(config, open_sets(config)).init)()
  )
  flags, losses = [], ([3.0] * 4, [2.0, 3.0, 2.0, 2.5], [1.0] * 4)
  for loss in losses:
    members = parallel.gather_carry(state).carry
    flags.append(members.network_state['linear'].tolist())
    state = lib.end_epoch(linear_start, config.linear_epochs, state, loss)
  expected = {
    'fixed': [[True] * 4, [True] * 4, [False] * 4],
    'validation': [[True] * 4, [True] * 4, [True, False, True, True]],
    'none': [[False] * 4] * 3,
  }
  assert flags == expected[linear_start]


@pytest.mark.slow
def test_run_learns_and_resumes_to_the_same_errors(tmp_path, data_dir, capsys):
  config = short(data_dir, epochs=6)
  errors = runs.run_and_resume(train, 'babi', config, tmp_path)
  assert [each['set'] for each in errors] == ['task 2', 'task 15'] * 2
  score = analysis.score(errors)
  assert score.keys() == {2, 15}
  assert max(score.values()) < 0.5  # A guess has 80 %.
  out = capsys.readouterr().out
  assert '15: basic deduction' in out
  assert 'failed (> 5 %)' in out
  for name in ('figures/attention.png', 'figures/examples.html'):
    assert str(tmp_path / 'resumed' / name) in out
    assert (tmp_path / 'resumed' / name).stat().st_size > 1000
  # A row each in the tables of errors and of attention.
  assert out.count('2: 2 supporting facts') == 2 * 3
  several = analysis.report(tmp_path / 'whole', tmp_path / 'resumed')
  assert 'attention' not in several
  (tmp_path / 'whole' / hops.EXAMPLES).unlink()
  assert 'attention' not in analysis.report(tmp_path / 'whole')


def test_member_alone_trains_as_in_the_ensemble(data_dir):
  config = short(data_dir, linear_start='none')
  sets = open_sets(config)
  experiment = train.make_experiment(config, sets)
  state = parallel.place_state(jax.jit(experiment.init)())
  alone = jax.tree.map(lambda x: x[3:4], parallel.gather_carry(state).carry)
  alone = parallel.place_state(
    training.create_ensemble(alone), jax.devices()[:1]
  )
  update = training.make_ensemble_update(
    train.make_loss_fn(train.make_network(config, sets)),
    train.make_optimizer(config, EPOCH),
    num_members=1,
    batch_size=32,
    reduction='sum',
    devices=jax.devices()[:1],
  )
  for step in range(8):
    batch = experiment.source.batch(step)
    state, _ = experiment.update(state, parallel.split_batch(batch))
    own = jax.tree.map(lambda x: x[3:4], batch)
    alone, _ = update(alone, parallel.split_batch(own, jax.devices()[:1]))
  expected = get_member(alone, 0).params
  # Batched products sum float32 numbers in another order than single ones.
  for name, value in get_member(state, 3).params['memn2n'].items():
    np.testing.assert_allclose(
      value, expected['memn2n'][name], rtol=1e-5, atol=1e-6
    )


def test_evaluation_interval_is_an_epoch_in_a_linear_start(tmp_path, data_dir):
  config = short(data_dir)
  config.run.eval_every = 2 * EPOCH
  with pytest.raises(
    configuration.ConfigurationError, match='run.eval_every must be 28'
  ):
    runs.run(train, 'babi', config, tmp_path)


def test_selection_is_by_training_error_and_then_by_loss():
  members = [
    {
      'set': 'task 1',
      'train_error': error,
      'train_loss': loss,
      'test_error': {'1': test},
    }
    for error, loss, test in (
      (0.2, 0.1, 0.0),
      (0.1, 0.7, 0.1),
      (0.1, 0.4, 0.5),
      (0.3, 0.2, 0.2),
    )
  ]
  assert analysis.score(members) == {1: 0.5}
  other = members[0] | {'set': 'task 2'}
  assert analysis.select([other, *members]) == {'task 2': 0, 'task 1': 3}


@pytest.mark.parametrize(
  'fields, message',
  [
    ({'version': 'hn'}, "version must be one of en, en-10k. Got: 'hn'"),
    ({'linear_start': 'late'}, 'linear_start must be one of none, fixed'),
    ({'clip_norm': 'l1'}, 'clip_norm must be one of spectral'),
    ({'restarts': 0}, 'restarts must be at least 1'),
    ({'tasks': (1, 21)}, 'tasks must be one of .* Got: 21'),
    (
      {'run': training.RunConfig(updates_per_call=2)},
      'run.updates_per_call must be 1',
    ),
    ({'num_hops': 0}, 'num_hops must be at least 1'),
  ],
)
def test_invalid_configuration_is_refused(fields, message):
  with pytest.raises(configuration.ConfigurationError, match=message):
    configuration.validate(config_of('quick', **fields))


@pytest.mark.slow
@pytest.mark.multiprocess
def test_two_processes_train_like_one(tmp_path, data_dir):
  flags = [
    '--preset=pe_ls_rn',
    '--config.tasks=2,15',
    '--config.restarts=3',  # 3 members on each device
    '--config.embedding_size=5',
    '--config.linear_epochs=1',
    f'--config.data_dir={data_dir}',
    f'--config.run.num_steps={3 * EPOCH}',
  ]

  def run(name, num_processes):
    workdir = tmp_path / name
    ended = jobs.train('babi', [*flags, f'--workdir={workdir}'], num_processes)
    lines = (workdir / 'metrics.jsonl').read_text().splitlines()
    metrics = [json.loads(line) | {'time': None} for line in lines]
    files = (workdir / analysis.ERRORS, workdir / hops.EXAMPLES)
    written = [json.loads(file.read_text()) for file in files]
    first, _, _ = ended[0][1].partition(' parameters')
    return metrics, written, first.split()[-1], ended[-1][1]

  one, written_by_one, parameters, _ = run('one', 1)
  two, written_by_two, same_parameters, second_said = run('two', 2)
  assert [line['step'] for line in two] == [EPOCH, 2 * EPOCH, 3 * EPOCH]
  # A member is on one device in both, so it makes the same updates.
  assert two == one
  assert written_by_two == written_by_one
  assert same_parameters == parameters  # of all members
  assert 'mean' not in second_said  # Only the primary prints.
