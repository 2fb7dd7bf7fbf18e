"""Tests experiments/learn_to_execute/: presets, short runs, table 1."""

import ast
import dataclasses
import functools
import json
import math
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import configuration
from experiments.learn_to_execute import analysis
from experiments.learn_to_execute import sweep
from experiments.learn_to_execute import train
from rmc_jax import training
from rmc_jax.analysis.runs import main
from rmc_jax.analysis.runs import Run
from rmc_jax.cores.build import CORES
from rmc_jax.cores.lstm import LSTMConfig
from rmc_jax.tasks import learn_to_execute
from rmc_jax.training import parallel
from rmc_jax.training.log import read_metrics


def config_of(preset, **fields):
  config = configuration.with_preset(train.Config, sweep.PRESETS, preset)
  return dataclasses.replace(config, **fields)


@pytest.mark.parametrize('preset', sweep.PRESETS)
def test_presets_are_valid(preset):
  configuration.validate(config_of(preset))


def test_sweep_is_plain_data():
  tree = ast.parse(pathlib.Path(sweep.__file__).read_text())
  assert not [
    node
    for node in ast.walk(tree)
    if isinstance(node, ast.Import | ast.ImportFrom)
  ]
  assert ast.literal_eval(repr(sweep.PRESETS)) == sweep.PRESETS


def test_table_1_is_six_tasks_by_all_sizes_of_appendix_a2():
  runs = [
    sweep.PRESETS[run['preset']] for run in sweep.SWEEPS['table_1'].values()
  ]
  assert len(runs) == 6 * (8 + 2 + 8 + 3)
  for run in runs:
    core, is_memory = run['core'], run['task'] in sweep.MEMORIZATION
    assert (run['max_length'], run['max_nesting']) == (5, 1 if is_memory else 2)
    assert (run['batch_size'], run['run']['num_steps']) == (128, 200_000)
    assert run['optimizer']['learning_rate'] == 1e-3
    assert (run['curriculum'], run['eval_examples']) == ('mix', 12_800)
    if core['name'] == 'relational_memory':
      units = core['mem_slots'] * core['num_heads'] * core['head_size']
      assert units in (1024, 2048)
      assert core['gate_style'] == 'memory'
    if core['name'] == 'dnc':
      assert core['controller'] == ('feed_forward' if is_memory else 'lstm')
  assert {run['task'] for run in runs} == set(analysis.TABLE_1)
  hard = [
    sweep.PRESETS[run['preset']]
    for run in sweep.SWEEPS['figure_8_hard'].values()
  ]
  assert len(hard) == 3 * 21
  assert {(run['max_length'], run['max_nesting']) for run in hard} == {(6, 3)}


@pytest.mark.parametrize(
  'preset, core',
  [
    ('program_lstm_1024', 12_959_744),
    ('program_lstm_2048', 51_085_312),
    ('program_rmc_4_slots_4_heads_1024', 344_324),
    ('program_rmc_2_slots_2_heads_2048', 5_309_444),
    ('program_entnet_4_cells_1024', 1_236_992),
  ],
)
def test_parameters_of_the_cores_at_full_size(preset, core):
  config = config_of(preset)
  state = jax.eval_shape(train.make_experiment(config).init)
  counts = {}
  for path, module in state.params.items():
    root = path.split('/')[0]
    sizes = [math.prod(leaf.shape) for leaf in module.values()]
    counts[root] = counts.get(root, 0) + sum(sizes)
  assert counts[config.core.name] == core
  # 4 x 256 and the logits of 45 characters, on the width of the core's output.
  width = state.params['encoder_decoder/mlp/~/linear_0']['w'].shape[0]
  read_out = (width + 1) * 256 + 3 * 257 * 256 + 257 * 45
  assert counts['encoder_decoder'] == read_out


def short(num_steps=6, updates_per_call=2, **fields):
  fields = {
    'task': 'program',
    'max_length': 2,
    'max_nesting': 2,
    'hidden_sizes': (7,),
    'batch_size': 8,
    'eval_examples': 37,  # divides by nothing
  } | fields
  config = config_of('quick', **fields)
  # Compiles in a third of the time of a relational memory.
  config.core = LSTMConfig(hidden_size=7)
  config.run = training.RunConfig(
    num_steps=num_steps,
    updates_per_call=updates_per_call,
    log_every=2,
    eval_every=4,
    checkpoint_every=4,
  )
  return config


def run_experiment(config, workdir):
  """Trains as the command line does."""
  with training.Runner(workdir) as runner:
    text = configuration.to_json('learn_to_execute', 'quick', config)
    configuration.save(workdir, text)
    train.train(config, runner)


@pytest.fixture(scope='module')
def run(tmp_path_factory):
  """A short run."""
  workdir = tmp_path_factory.mktemp('runs') / 'quick'
  config = short()
  run_experiment(config, workdir)
  return config, workdir


def test_short_run_writes_metrics_curves_and_samples(run):
  config, workdir = run
  records = read_metrics(workdir)
  assert [r['step'] for r in records] == [2, 4, 6]
  assert [r['step'] for r in records if 'eval' in r] == [4, 6]
  for record in records[1:]:
    # Every one of the 37 examples, and each once.
    right = record['eval']['sequence_accuracy'] * 37
    assert right == pytest.approx(round(right), abs=1e-9)
  assert (workdir / analysis.CURVES).read_bytes().startswith(b'\x89PNG')
  samples = (workdir / analysis.SAMPLES).read_text()
  assert samples.count('answer') >= 8
  assert (
    json.loads((workdir / 'config.json').read_text())['config']['max_nesting']
    == config.max_nesting
  )


def test_evaluation_equals_a_loop_over_the_characters(run):
  config, _ = run
  config = dataclasses.replace(config, eval_feed='predictions')
  experiment = train.make_experiment(config)
  state = jax.jit(experiment.init)()
  counted = experiment.evaluate(parallel.place_state(state))
  # The same split, example by example.
  task = train.make_task(config)
  eval_key = jax.random.split(jax.random.key(config.run.seed), 5)[3]
  keys = jax.vmap(jax.random.fold_in, (None, 0))(eval_key, jnp.arange(37))
  sample = jax.jit(jax.vmap(lambda key: learn_to_execute.sample(key, task)))
  batch = sample(keys)
  apply = jax.jit(train.make_network(config).apply, static_argnums=2)
  logits = apply(state.params, batch, 'predictions')
  right = characters = complete = 0
  loss = 0.0
  for i in range(37):
    length = int(batch.target_length[i])
    target = np.asarray(batch.targets[i, :length])
    rows = np.asarray(logits[i, :length], np.float64)
    hits = rows.argmax(-1) == target
    right += hits.sum()
    complete += hits.all()
    characters += length
    for row, label in zip(rows, target, strict=True):
      loss += np.log(np.exp(row).sum()) - row[label]
  assert len({int(n) for n in batch.target_length}) > 1
  assert counted['accuracy'] == (right, characters)
  assert counted['sequence_accuracy'] == (complete, 37)
  np.testing.assert_allclose(counted['loss'][0], loss, rtol=1e-5)
  assert counted['loss'][1] == characters


@pytest.mark.slow
def test_training_and_evaluation_have_their_own_feed():
  def evaluated(**feeds):
    experiment = train.make_experiment(short(updates_per_call=1, **feeds))
    state = parallel.place_state(jax.jit(experiment.init)())
    state, metrics = experiment.update(state)
    return float(metrics['loss'][0]), experiment.evaluate(state)['loss'][0]

  zeros = evaluated()
  teacher = evaluated(train_feed='teacher_forcing')
  last = evaluated(eval_feed='predictions')
  assert zeros[0] != teacher[0]
  assert zeros[0] == last[0]
  assert zeros[1] != last[1]


@pytest.mark.parametrize(
  'curriculum',
  [
    'naive',
    *(pytest.param(c, marks=pytest.mark.slow) for c in ('mix', 'combine')),
  ],
)
def test_stopped_run_resumes_to_the_same_curve(tmp_path, curriculum):
  fields = {
    'curriculum': curriculum,
    'curriculum_window': 2,
    'curriculum_threshold': 10.0,  # every second update is harder
  }
  whole, parts = tmp_path / 'whole', tmp_path / 'parts'
  run_experiment(short(num_steps=12, **fields), whole)
  run_experiment(short(num_steps=8, **fields), parts)
  run_experiment(short(num_steps=12, **fields), parts)
  expected = {r['step']: r['train'] for r in read_metrics(whole)}
  got = {r['step']: r['train'] for r in read_metrics(parts)}
  assert got.keys() == expected.keys() == {2, 4, 6, 8, 10, 12}
  for step, metrics in expected.items():
    for name in ('loss', 'accuracy', 'gradient_norm', 'curriculum_length'):
      assert got[step][name] == metrics[name], (step, name)
  difficulties = [
    (metrics['curriculum_length'], metrics['curriculum_nesting'])
    for _, metrics in sorted(expected.items())
  ]
  if curriculum == 'mix':
    assert len(set(difficulties)) == 1
  else:
    assert difficulties[0][1] == 1
    assert difficulties[-1] == (2, 2)


def test_the_first_update_counts_the_characters_of_its_batch():
  config = short(updates_per_call=1, curriculum='combine')
  experiment = train.make_experiment(config)
  state = jax.jit(experiment.init)()
  params = state.params
  _, metrics = experiment.update(parallel.place_state(state))
  # The batch that the keys give.
  task, curriculum = train.make_task(config), train.make_curriculum(config)
  train_key = jax.random.split(jax.random.key(config.run.seed), 5)[2]
  keys = jax.vmap(jax.random.fold_in, (None, 0))(
    jax.random.fold_in(train_key, 0), jnp.arange(config.batch_size)
  )

  def draw(key):
    difficulty_key, sample_key = jax.random.split(key)
    difficulty = curriculum.sample_difficulty(
      curriculum.initial_state(), difficulty_key
    )
    return learn_to_execute.sample(sample_key, task, difficulty)

  batch = jax.jit(jax.vmap(draw))(keys)
  apply = jax.jit(train.make_network(config).apply, static_argnums=2)
  logits = apply(params, batch, 'zeros')
  right = characters = loss = 0.0
  for i in range(config.batch_size):
    length = int(batch.target_length[i])
    assert length < task.target_steps  # there is padding to be left out
    rows = np.asarray(logits[i, :length], np.float64)
    target = np.asarray(batch.targets[i, :length])
    right += (rows.argmax(-1) == target).sum()
    characters += length
    for row, label in zip(rows, target, strict=True):
      loss += np.log(np.exp(row).sum()) - row[label]
  assert metrics['accuracy'] == (right, characters)
  np.testing.assert_allclose(metrics['loss'][0], loss, rtol=1e-5)
  assert metrics['loss'][1] == characters


@pytest.mark.parametrize('num_devices', [1, 2])
def test_number_of_devices_does_not_change_a_run(num_devices, monkeypatch):
  """Compared with the four devices of the tests, as the difficulty rises."""
  config = short(
    updates_per_call=2,
    curriculum='combine',
    curriculum_window=2,
    curriculum_threshold=10.0,
  )

  def run(devices):
    monkeypatch.setattr(
      training, 'make_update', functools.partial(make_update, devices=devices)
    )
    experiment = train.make_experiment(config)
    state = parallel.place_state(jax.jit(experiment.init)(), devices)
    history = []
    for _ in range(4):
      state, metrics = experiment.update(state)
      history.append(jax.device_get(metrics))
    return history

  make_update = training.make_update
  expected, got = run(None), run(jax.devices()[:num_devices])
  for there, here in zip(expected, got, strict=True):
    # Integers: the characters of the answers, and the difficulties.
    assert here['loss'][1] == there['loss'][1]
    for name in ('curriculum_length', 'curriculum_nesting'):
      assert here[name][0] / here[name][1] == there[name][0] / there[name][1]
    # Sums in another order.
    np.testing.assert_allclose(here['loss'][0], there['loss'][0], rtol=1e-4)


@pytest.mark.parametrize(
  'fields, message',
  [
    ({'max_length': 0}, 'max_length must be at least 1. Got: 0'),
    ({'max_nesting': 0}, 'max_nesting must be at least 1. Got: 0'),
    ({'task': 'sorting'}, "task must be one of .*addition.* 'sorting'"),
    ({'task': 'copy', 'max_nesting': 2}, 'max_nesting=1'),
    ({'tokens': 'words', 'num_integers': 10}, 'num_integers must be at least'),
    ({'curriculum': 'hard'}, "'hard'"),
    ({'train_feed': 'nothing'}, "train_feed must be one of zeros.*'nothing'"),
    ({'eval_feed': 'x'}, "eval_feed must be one of zeros.*'x'"),
    ({'eval_examples': 0}, 'eval_examples must be .* 1. Got: 0'),
    (
      {'hidden_sizes': (7, 0)},
      r'hidden_sizes\[1\] must be .* 1. Got: 0',
    ),
    ({'curriculum_window': 1}, 'curriculum: window must be at least 2'),
    (
      {'tokens': 'words', 'num_integers': 10**9},
      'num_integers must be .* at most 10000000',
    ),
  ],
)
def test_invalid_configuration_is_refused(fields, message):
  with pytest.raises(configuration.ConfigurationError, match=message):
    configuration.validate(config_of('quick', **fields))


def lines_of(*accuracies):
  return [
    {
      'step': i,
      'eval': {'accuracy': accuracy, 'sequence_accuracy': accuracy / 2},
    }
    for i, accuracy in enumerate(accuracies)
  ]


def test_score_is_best_and_last():
  run = Run(
    pathlib.Path('a'), 'learn_to_execute', {}, lines_of(0.25, 0.75, 0.5)
  )
  assert analysis.score(run) == (0.75, 0.5, 0.375, 0.25)
  with pytest.raises(ValueError, match='no evaluation yet'):
    analysis.score(run._replace(records=[{'step': 3, 'train': {}}]))


def test_table_shows_the_best_run_next_to_the_papers(tmp_path, monkeypatch):
  shown, best_runs = [], analysis.best_runs

  def spy(runs):
    shown.append(best_runs(runs))
    return shown[-1]

  monkeypatch.setattr(analysis, 'best_runs', spy)

  def write(name, accuracies, family, **fields):
    config = short(**fields)
    config.core = CORES[family][0]()
    workdir = tmp_path / name
    workdir.mkdir()
    (workdir / 'config.json').write_text(
      json.dumps(
        {
          'experiment': 'learn_to_execute',
          'config': dataclasses.asdict(config),
        }
      )
    )
    (workdir / 'metrics.jsonl').write_text(
      ''.join(json.dumps(line) + '\n' for line in lines_of(*accuracies))
    )
    return workdir

  workdirs = [
    write('a', [0.5, 0.25], 'relational_memory', task='addition'),
    write('b', [0.125, 0.9955], 'relational_memory', task='addition'),
    write('c', [0.6], 'dnc', task='addition'),
    write('d', [0.7], 'dnc', task='reverse', max_nesting=1),
  ]
  text = analysis.report(*workdirs)
  assert text.splitlines() == [
    'a: RMC on addition, length 2, nesting 2: accuracy 25.0% of characters, '
    'best 50.0% (not solved: 99%); sequence accuracy 12.5%, best 25.0%',
    'b: RMC on addition, length 2, nesting 2: accuracy 99.6% of characters, '
    'best 99.6% (solved: 99%); sequence accuracy 49.8%, best 49.8%',
    'c: DNC on addition, length 2, nesting 2: accuracy 60.0% of characters, '
    'best 60.0% (not solved: 99%); sequence accuracy 30.0%, best 30.0%',
    'd: DNC on reverse, length 2: accuracy 70.0% of characters, '
    'best 70.0% (not solved: 99%); sequence accuracy 35.0%, best 35.0%',
    '',
    'best, % of characters  addition, length 2, nesting 2  reverse, length 2',
    'DNC                    60.0 (paper 99.4)              70.0 (paper 100.0)',
    'RMC                    99.6 (paper 99.9)              unmeasured',
    '',
    f'curves: {tmp_path / analysis.CURVES}',
  ]
  figure = (tmp_path / analysis.CURVES).read_bytes()
  assert figure.startswith(b'\x89PNG')
  # The figure shows the best run of each core.
  assert {
    problem: {family: run.name for family, run in by_family.items()}
    for problem, by_family in shown[0].items()
  } == {
    'addition, length 2, nesting 2': {'DNC': 'c', 'RMC': 'b'},
    'reverse, length 2': {'DNC': 'd'},
  }


def test_run_of_another_experiment_is_refused(tmp_path, capsys):
  (tmp_path / 'config.json').write_text(
    json.dumps({'experiment': 'nth_farthest', 'config': {}})
  )
  assert main(analysis.report, 'usage', [str(tmp_path)]) == 77
  assert 'holds a run of nth_farthest' in capsys.readouterr().err


def test_folder_without_a_run_is_refused(tmp_path, capsys):
  assert main(analysis.report, 'usage', [str(tmp_path / 'absent')]) == 77
  assert 'absent' in capsys.readouterr().err
  assert main(analysis.report, 'usage', []) == 77
