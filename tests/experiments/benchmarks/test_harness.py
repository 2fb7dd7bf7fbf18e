"""Tests experiments/benchmarks/harness.py with workers that misbehave."""

import argparse
import time

import pytest

from experiments.benchmarks import harness

pytestmark = pytest.mark.usefixtures('fake_workers')


@pytest.fixture
def session():
  with make_session() as session:
    yield session


def make_session(**changes):
  options = {
    'device': 'cpu', 'trials': 2, 'trial_seconds': 0.01, 'limit': 30.0,
  }  # fmt: skip
  return harness.Session(argparse.Namespace(**(options | changes)))


def test_trials_alternate_after_one_to_warm_up(session, tmp_path):
  log = tmp_path / 'steps'
  for name in 'abc':
    session.add(name, 'fake', {'name': name, 'log': str(log)})
  log.unlink()
  session.time()
  steps = log.read_text().split()
  order = [a for a, b in zip(steps, ['', *steps], strict=False) if a != b]
  assert order == list('abc' * 3)
  for entry in session.entries.values():
    assert len(entry['seconds']['train']) == 2
    assert entry['about'] == {'torch': '1.2.3'}
    assert entry['build']['train']['items'] == 7
    assert entry['memory_bytes'] > 0


def test_first_step_of_a_trial_is_not_timed(session, tmp_path):
  log = tmp_path / 'steps'
  session.add('a', 'fake', {'name': 'a', 'log': str(log)})
  log.unlink()
  session.time()
  timed = sum(map(len, session.entries['a']['seconds']['train']))
  # The warm-up has two timed steps; each of three trials has one that is not.
  assert len(log.read_text().split()) == timed + 2 + 3


def test_trial_is_filled_with_steps_but_has_two():
  with make_session(trial_seconds=0.1, trials=1) as session:
    for name, variant in (('half', 'slow'), ('third', '')):
      session.add(name, 'fake', {'name': name, 'variant': variant})
    session.time()
    slow, fast = [
      len(entry['seconds']['train'][0]) for entry in session.entries.values()
    ]
  assert slow == 2
  assert fast in (2, 3)


@pytest.mark.parametrize(
  ('name', 'reason'),
  [
    ('dies_at_load', 'died with exit code 3: no such library'),
    ('errs', 'ValueError: no forward [b]'),
    ('dies_later', 'died with exit code 5'),
    ('hangs', 'no answer to "build" in 3 s'),
  ],
)
def test_failures_are_recorded_and_others_timed(name, reason):
  start = time.monotonic()
  with make_session(limit=3.0) as session:
    for each in ('half', name):
      session.add(each, 'fake', {'name': each}, steps=('train', 'forward'))
    session.time()
    assert set(session.entries['half']['seconds']) == {'train'}
    assert session.entries[name]['left_out'].startswith(reason)
  assert time.monotonic() - start < 30  # The hanging one was killed.


def test_disagreement_is_recorded_and_required_ones_raise(session):
  def check(results):
    raise harness.Failed(f'the loss is {results["loss"]}')

  session.add('a', 'fake', {'name': 'a'}, check=check)
  assert session.entries['a']['left_out'] == 'the loss is 1.0'
  with pytest.raises(harness.Failed, match='^b: the loss is 1.0$'):
    session.add('b', 'fake', {'name': 'b'}, check=check, required=True)


def test_processes_of_a_job_know_their_index(session):
  found = {}
  session.add(
    'a',
    'fake',
    {'name': 'a'},
    variables=[{}, {}, {}],
    check=lambda results: found.update(results) or {},
  )
  assert found['process'] == 1
  session.time()
  assert len(session.entries['a']['seconds']['train']) == 2


def test_job_ends_when_one_process_dies(session):
  start = time.monotonic()
  request = {'name': 'dies_at_load', 'dies': 2}
  session.add('a', 'fake', request, variables=[{}, {}, {}])
  assert session.entries['a']['left_out'].startswith('died with exit code 3')
  assert time.monotonic() - start < 30  # The others would wait for a minute.


def test_work_outside_a_trial_is_noticed():
  with make_session(trials=2, trial_seconds=0.2) as session:
    session.add('half', 'fake', {'name': 'half'})
    session.add('third', 'fake', {'name': 'third'})
    session.time()
    quiet = session.result()['idle_share']
    session.add('spins', 'fake', {'name': 'spins'})
    session.time()
    assert session.result()['idle_share'] > quiet + 0.05


def test_missing_environment_is_recorded(session, monkeypatch, tmp_path):
  monkeypatch.setattr(harness, 'command', lambda worker: [str(tmp_path / 'x')])
  session.add('a', 'fake', {'name': 'a'})
  reason = session.entries['a']['left_out']
  assert reason == 'not installed: run launch/benchmark.sh'


def test_unknown_question_is_an_error(tmp_path):
  environment = harness.environment('cpu', tmp_path)
  worker = harness.Worker(harness.command('fake'), [environment])
  with pytest.raises(harness.Failed, match="no attribute 'dance'"):
    worker.ask(30, ask='dance')
  worker.stop()  # A second time does no harm.


def test_large_pages_are_a_default(monkeypatch, tmp_path):
  monkeypatch.delenv('GLIBC_TUNABLES', raising=False)
  environment = harness.environment('cpu', tmp_path)
  assert environment['GLIBC_TUNABLES'] == harness.LARGE_PAGES
  monkeypatch.setenv('GLIBC_TUNABLES', 'x')
  assert harness.environment('gpu', tmp_path)['GLIBC_TUNABLES'] == 'x'
