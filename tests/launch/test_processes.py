"""Tests `launch.processes` with real processes."""

import functools
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time

import pytest

from launch import job
from launch import processes

# JAX warns about forks if other tests in this process have imported it. A
# launcher never imports it.
pytestmark = pytest.mark.filterwarnings('ignore:os.fork:RuntimeWarning')


def python(program):
  return [sys.executable, '-c', program]


def ends_with(*codes):
  """Returns a run of one process; its attempts end with these codes."""
  remaining = list(codes)
  return {'run': lambda slot: [python(f'exit({remaining.pop(0)})')]}


def supervise(runs, slots=1, max_restarts=2, grace=10.0, **options):
  supervisor = processes.Supervisor(
    runs, slots=slots, max_restarts=max_restarts, grace=grace, **options
  )
  return supervisor.run()


@pytest.mark.parametrize(
  ('codes', 'expected'),
  [
    ([0, 0, 0], 0),
    ([75, 0, 75], 75),
    ([0, 3, 75], 3),
    ([134, 1], 134),
    ([-9, 1], 137),
    ([1, 76], 76),
    ([76, 77], 77),
  ],
)
def test_group_code(codes, expected):
  assert processes.group_code(codes) == expected


@pytest.mark.parametrize('code', [0, 76, 77])
def test_final_exit_codes_are_not_restarted(code):
  assert supervise(ends_with(code, 99)) == {'run': code}


def test_preemptions_do_not_count_as_restarts(capfd):
  runs = ends_with(75, 75, 75, 0)
  assert supervise(runs, max_restarts=0) == {'run': 0}
  assert capfd.readouterr().err.count('preempted; restarting') == 3


def test_number_of_restarts_is_limited(capfd, monkeypatch):
  monkeypatch.setattr(processes, '_LONGEST_PAUSE', 0.01)
  assert supervise(ends_with(1, 75, 3, 5, 0)) == {'run': 5}
  log = capfd.readouterr().err
  assert 'ended with 1 (crash); restart 1 of 2' in log
  assert 'after 2 restarts' in log


def test_progress_resets_the_number_of_restarts(capfd, monkeypatch):
  monkeypatch.setattr(processes, '_LONGEST_PAUSE', 0.01)
  # The last: the newest checkpoint was damaged, so an older one is the newest.
  steps = [100, 100, 200, 100]
  runs = ends_with(1, 1, 1, 5, 0)
  assert supervise(runs, progress=lambda name: steps.pop(0)) == {'run': 5}
  log = capfd.readouterr().err
  counts = re.findall(r'restart (\d) of 2', log)
  assert counts == ['1', '2', '1']


def test_output_lines_start_with_the_rank(capfd):
  commands = [python(f'print("hello {rank}")') for rank in range(3)]
  assert supervise({'': lambda slot: commands}) == {'': 0}
  lines = capfd.readouterr().out.splitlines()
  assert sorted(lines) == ['[0] hello 0', '[1] hello 1', '[2] hello 2']


def test_other_processes_are_killed_after_the_grace_period(capfd):
  waits = python('import time; time.sleep(60)')
  runs = {'': lambda slot: [waits, python('exit(77)')]}
  start = time.monotonic()
  assert supervise(runs, grace=0.5) == {'': 77}
  assert 0.5 < time.monotonic() - start < 20
  assert 'process 1 ended with 77' in capfd.readouterr().err


def test_children_of_killed_processes_are_killed(tmp_path):
  child = f"""
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])
open({str(tmp_path / 'pid')!r}, 'w').write(str(child.pid))
time.sleep(60)
"""
  fails = python('import time; time.sleep(2); exit(3)')
  runs = {'': lambda slot: [python(child), fails]}
  supervise(runs, grace=0.1, max_restarts=0)
  pid = int((tmp_path / 'pid').read_text())
  for _ in range(50):
    if not is_running(pid):
      return
    time.sleep(0.1)
  pytest.fail('the child still runs')


def is_running(pid):
  stat = pathlib.Path(f'/proc/{pid}/stat')
  # A zombie does not run; its new parent reaps it at some time.
  return stat.exists() and stat.read_text().rpartition(')')[2].split()[0] != 'Z'


def test_one_run_at_a_time_in_each_slot(tmp_path, capfd):
  program = f"""
import pathlib, sys, time
folder = pathlib.Path({str(tmp_path)!r})
(folder / sys.argv[1]).touch()
time.sleep(1)
print(len(list(folder.iterdir())))
time.sleep(0.5)
(folder / sys.argv[1]).unlink()
"""
  slots = []

  def commands(name, slot):
    slots.append(slot)
    return [[*python(program), name]]

  runs = {name: functools.partial(commands, name) for name in 'abcde'}
  codes = supervise(runs, slots=2)
  assert codes == dict.fromkeys('abcde', 0)
  assert set(slots) == {0, 1}
  running = {line.split()[-1] for line in capfd.readouterr().out.splitlines()}
  assert running <= {'1', '2'}


STOPS = """
import signal, sys, time
def stop(number, frame):
  print('stopping', flush=True)
  sys.exit(75)
signal.signal(signal.SIGTERM, stop)
print('ready', flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGINT])
def test_signal_reaches_all_processes_and_prevents_restarts(capfd, number):
  threading.Timer(2.0, os.kill, (os.getpid(), number)).start()
  runs = {
    'a': lambda slot: [python(STOPS), python(STOPS)],
    'b': lambda slot: [python('exit(0)')],
  }
  assert supervise(runs) == {'a': 75, 'b': 75}
  out = capfd.readouterr().out
  assert '[a 0] stopping' in out
  assert '[a 1] stopping' in out


def test_second_signal_kills():
  ignoring = python(
    'import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(60)'
  )
  for seconds in (2.0, 3.0):
    threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGTERM)).start()
  start = time.monotonic()
  assert supervise({'': lambda slot: [ignoring]}) == {'': 137}
  assert time.monotonic() - start < 20


@pytest.mark.skipif(sys.platform != 'linux', reason='needs prctl of Linux')
def test_processes_of_a_killed_launcher_are_terminated(tmp_path):
  program = f"""
import sys
sys.path.insert(0, {str(job.ROOT)!r})
from launch import processes
command = [sys.executable, '-c', {STOPS!r}]
runs = {{'x': lambda slot: [command]}}
processes.Supervisor(runs, slots=1, max_restarts=0, grace=1).run()
"""
  with (tmp_path / 'out').open('w') as out:
    launcher = subprocess.Popen(python(program), stdout=out)
  wait_for(tmp_path / 'out', 'ready')
  (pid,) = [
    int(line.parent.name)
    for line in pathlib.Path('/proc').glob('[0-9]*/stat')
    if parent_of(line) == launcher.pid
  ]
  launcher.kill()
  launcher.wait()
  for _ in range(100):
    if not is_running(pid):
      return
    time.sleep(0.1)
  os.kill(pid, signal.SIGKILL)
  pytest.fail('the process still runs')


def wait_for(path, text):
  for _ in range(100):
    if text in path.read_text():
      return
    time.sleep(0.1)
  pytest.fail(f'{path} never contained {text!r}')


def parent_of(stat):
  try:
    return int(stat.read_text().rpartition(')')[2].split()[1])
  except OSError:
    return -1
