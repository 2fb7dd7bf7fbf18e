"""Tests experiments/benchmarks/contest.py with contestants that misbehave."""

import os
import pathlib
import sys
import time

import pytest

from experiments.benchmarks import contest

ROOT = pathlib.Path(__file__).resolve().parents[3]
ENVIRONMENT = {'PYTHONPATH': str(ROOT), 'PATH': os.environ['PATH']}
# Answers every question with its number, and spins or dies as it is told.
TALKER = """
import json, sys, threading, time
def spin():
  while True:
    pass
for number, line in enumerate(sys.stdin):
  question = json.loads(line)
  if question['ask'] == 'die':
    sys.stderr.write('out of memory\\n')
    sys.exit(7)
  if question['ask'] == 'hang':
    time.sleep(60)
  if question['ask'] == 'err':
    print(json.dumps({'error': 'ValueError: too wide'}))
  elif question['ask'] == 'run':
    with open(sys.argv[1], 'a') as file:
      file.write(sys.argv[2] + '\\n')
    seconds = [float(sys.argv[3])] * question['steps']
    print(json.dumps({'seconds': seconds}))
  else:
    print(json.dumps({'number': number, 'long': 'x' * 200000}))
  sys.stdout.flush()
  if question['ask'] == 'spin':
    threading.Thread(target=spin, daemon=True).start()
"""


@pytest.fixture
def start(tmp_path):
  workers = []

  def begin(name='a', seconds=0.01, program=TALKER):
    log = str(tmp_path / 'turns')
    command = [sys.executable, '-c', program, log, name, str(seconds)]
    workers.append(contest.Worker(command, ENVIRONMENT, tmp_path))
    return workers[-1]

  begin.turns = lambda: (tmp_path / 'turns').read_text().split()
  yield begin
  for worker in workers:
    worker.stop()


def test_answers_come_in_order_and_may_be_long(start):
  worker = start()
  for number in range(3):
    answer = worker.ask(30, ask='count')
    assert answer == {'number': number, 'long': 'x' * 200000}


def test_death_is_told_with_code_and_last_words(start):
  with pytest.raises(contest.Failed, match='exit code 7: out of memory'):
    start().ask(30, ask='die')


def test_what_hangs_is_ended(start):
  worker = start()
  worker.ask(30, ask='count')
  before = time.monotonic()
  with pytest.raises(contest.Failed, match='no answer to "hang" in 0.3 s'):
    worker.ask(0.3, ask='hang')
  # Not after the minute that it would sleep; and it is gone.
  assert time.monotonic() - before < 30
  assert worker.cpu_seconds() == 0
  worker.stop()  # A second time does no harm.


def test_an_error_is_told(start):
  with pytest.raises(contest.Failed, match='^ValueError: too wide$'):
    start().ask(30, ask='err')


def test_turns_alternate_after_one_to_warm_up(start):
  workers = {name: start(name) for name in 'abc'}
  played = play(workers, rounds=2)
  assert start.turns() == list('abc' * 3)
  assert list(played.seconds) == list('abc')
  assert [len(rounds) for rounds in played.seconds.values()] == [2, 2, 2]
  assert played.failures == {}


def test_a_turn_is_filled_with_steps_but_has_two(start):
  workers = {'slow': start('s', 5.0), 'fast': start('f', 0.1)}
  played = play(workers, rounds=1, turn_seconds=1.0)
  assert played.seconds == {'slow': [[5.0] * 2], 'fast': [[0.1] * 10]}


def test_one_that_dies_in_a_round_leaves_the_others_to_it(start):
  dying = TALKER.replace('[float(sys.argv[3])]', '[1 / (2 - number)]')
  workers = {'a': start('a'), 'b': start('b', program=dying), 'c': start('c')}
  played = play(workers, rounds=3)
  assert start.turns() == list('abcabcabcac')
  assert set(played.seconds) == {'a', 'c'}
  assert 'ZeroDivisionError' in played.failures['b']


def test_who_works_out_of_turn_is_noticed(start):
  patient = TALKER.replace('seconds = [', 'time.sleep(0.1); seconds = [')
  workers = {name: start(name, program=patient) for name in 'ab'}
  for worker in workers.values():
    worker.ask(30, ask='count')  # Python has started.
  quiet = play(workers, rounds=3).idle_share
  workers['b'].ask(30, ask='spin')
  # Of the half of the time that is not its turn; less on a busy machine.
  assert play(workers, rounds=3).idle_share > quiet + 0.05


def test_time_is_the_median_of_the_rounds_medians():
  turns = [[1.0, 2.0, 90.0], [4.0], [3.0, 3.0]]
  assert contest.step_time(turns) == (3.0, 2.0, 4.0)


def test_ratio_is_taken_in_each_round_before_the_median():
  # Slow in the second round were both: their ratio was not.
  theirs, ours = [[2.0], [20.0], [3.0]], [[1.0], [10.0], [2.0]]
  assert contest.ratio(theirs, ours) == (2.0, 1.5, 2.0)
  with pytest.raises(ValueError, match='shorter'):
    contest.ratio(theirs, ours[:2])


def play(workers, rounds, turn_seconds=0.01):
  return contest.play(
    workers, 'train', rounds=rounds, turn_seconds=turn_seconds, limit=30
  )
