"""Tests `launch.slurm`: its flags, and its scripts under bash with a fake srun.

tests/launch/goldens/ has whole scripts; tests/launch/test_slurm_drill.py runs
one on a real Slurm.
"""

import os
import re
import signal
import subprocess

import pytest

from launch import job
from launch import slurm
from tests.launch.programs import write_program


def dry_run(capsys, *arguments):
  assert slurm.main(['nth_farthest', '--dry_run', *arguments]) == 0
  return capsys.readouterr().out


def directives(text):
  return dict(re.findall(r'^#SBATCH --(\S+?)(?:=(.*))?$', text, re.MULTILINE))


@pytest.mark.parametrize(
  ('flags', 'tasks'),
  [
    ([], '1'),
    (['--gpus_per_node=8'], '8'),
    (['--gpus_per_node=8', '--processes_per_node=2'], '2'),
    (['--processes_per_node=3'], '3'),
  ],
)
def test_number_of_tasks(capsys, flags, tasks):
  assert directives(dry_run(capsys, *flags))['ntasks-per-node'] == tasks


@pytest.mark.parametrize(
  ('flags', 'cpus'),
  [
    ([], '40'),  # The limit of some nodes of the default partition.
    (['--processes_per_node=3'], '13'),
    (['--gpus_per_node=8'], '6'),  # Only one kind of node has that many.
    (['--gpus_per_node=2', '--processes_per_node=1'], '12'),
    (['--partition=long', '--gpus_per_node=4'], '16'),
    (['--partition=long', '--gpus_per_node=4', '--cpus_per_task=3'], '3'),
    (['--processes_per_node=99'], '1'),
  ],
)
def test_task_gets_its_share_of_the_cores_of_a_node(
  capsys, monkeypatch, tmp_path, flags, cpus
):
  write_program(
    tmp_path / 'sinfo',
    '[[ " $* " == *"%P %c %B %G"* ]] || exit 1',
    '[[ " $* " == *" --partition=long "* ]] ||',
    '  echo "short* 48 UNLIMITED gpu:8(S:0-1),shard:64(S:0-1)"',
    '[[ " $* " == *" --partition=long "* ]] || echo "short* 48 40 gpu:a100:4"',
    'echo "long 64 UNLIMITED gpu:v100:4(S:0)"',
    '[[ " $* " == *" --partition=long "* ]] || echo "tiny 2 UNLIMITED (null)"',
  )
  monkeypatch.setenv('PATH', str(tmp_path), prepend=':')
  output = dry_run(capsys, *flags)
  assert directives(output)['cpus-per-task'] == cpus
  assert f'srun --label --cpus-per-task={cpus} ' in output


@pytest.mark.parametrize('known', [[], ['short* 48 UNLIMITED (null)']])
def test_cores_that_cannot_be_computed_are_reported(capsys, monkeypatch, known):
  monkeypatch.setattr(slurm, '_nodes', lambda partition: known)
  assert slurm.main(['nth_farthest', '--dry_run', '--gpus_per_node=8']) == 0
  shown = capsys.readouterr()
  assert 'cpus' not in shown.out
  assert '--cpus_per_task' in shown.err


def test_job_may_run_on_the_numbers_of_nodes_that_divide_the_batch(
  capsys, monkeypatch, checkout
):
  monkeypatch.setattr(job, 'ROOT', checkout)
  output = dry_run(
    capsys, '--nodes=8', '--min_nodes=2', '--gpus_per_node=4',
    '--preset=paper', '--config.batch_size=960',
  )  # fmt: skip
  assert directives(output)['nodes'] == '2-8'
  assert 'counts=(8 6 5 4 3 2)' in output


def test_dry_run_with_min_nodes_needs_the_packages(capsys, tmp_path):
  run = job.Run('nth_farthest', '', (), 'runs/mine')
  with pytest.raises(SystemExit) as exit_info:
    slurm._batch_size(run, str(tmp_path / 'python'))
  assert exit_info.value.code == 77
  assert '--min_nodes: run launch/setup.sh' in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
  ('arguments', 'message'),
  [
    (
      ['nth_farthest', '--nodes=4', '--min_nodes=3', '--config.batch_size=64'],
      '--min_nodes: .*--nodes=4 .*1 each.* batch of 64: 4, 2, 1; got 3',
    ),
    (
      ['nth_farthest', '--nodes=3', '--min_nodes=1', '--gpus_per_node=8'],
      '--nodes: .*8 each.* batch of 256: 2, 1; got 3',
    ),
    (
      ['nth_farthest', '--nodes=2', '--min_nodes=3', '--config.batch_size=6'],
      '--min_nodes: .*--nodes=2 .* batch of 6: 2, 1; got 3',
    ),
    # Episodes of an evaluation are divided too.
    (
      ['mini_pacman', '--nodes=16', '--min_nodes=1', '--config.batch_size=32',
       '--config.eval_batch_size=200'],
      '--nodes: .* batch of 8: 8, 4, 2, 1; got 16',
    ),
    (['babi', '--nodes=2', '--min_nodes=1'], '--min_nodes: babi .*no global'),
    (['nth_farthest', '--min_nodes=1', '--config.batch_siz=1'], 'batch_size'),
  ],
)  # fmt: skip
def test_number_of_nodes_that_does_not_divide_the_batch_is_refused(
  capfd, monkeypatch, checkout, arguments, message
):
  monkeypatch.setattr(job, 'ROOT', checkout)
  with pytest.raises(SystemExit) as exit_info:
    slurm.main([*arguments, '--dry_run'])
  assert exit_info.value.code == 77
  assert re.search(message, capfd.readouterr().err)


def test_missing_sbatch_is_reported(capsys, monkeypatch):
  monkeypatch.setattr(slurm.shutil, 'which', lambda name: None)
  with pytest.raises(SystemExit) as exit_info:
    slurm.main(['nth_farthest'])
  assert exit_info.value.code == 77
  assert 'sbatch' in capsys.readouterr().err


@pytest.fixture
def run_script(capsys, monkeypatch, tmp_path):
  """Runs the script with an srun that exits with `code`.

  Returns the exit code and the output.
  """
  monkeypatch.chdir(tmp_path)
  (tmp_path / 'runs/slurm').mkdir(parents=True)
  programs = tmp_path / 'bin'
  write_program(programs / 'scontrol', 'echo "scontrol $*"')

  def run(code, *flags, signalled=False, task='0', error='', **more):
    write_program(
      programs / 'srun',
      'echo "srun $*"',
      # $PPID is the script.
      'kill -TERM $PPID' if signalled else ':',
      f'exit {code}',
    )
    environment = {
      'PATH': f'{programs}:{os.environ["PATH"]}',
      'SLURM_JOB_ID': '12',
      'SLURM_JOB_NUM_NODES': '1',
      'SLURM_ARRAY_TASK_ID': task,
      **more,
    }
    completed = subprocess.run(
        ['bash', '-s'], input=dry_run(capsys, *flags), env=environment,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert error in completed.stderr
    assert error or not completed.stderr
    return completed.returncode, completed.stdout

  return run


@pytest.mark.parametrize(
  ('code', 'expected'), [(0, 0), (76, 76), (77, 77), (201, 76), (202, 77)]
)
def test_final_exit_codes_are_not_requeued(run_script, code, expected):
  returned, output = run_script(code)
  assert returned == expected
  assert 'scontrol' not in output


def test_array_task_runs_its_run(run_script):
  _, output = run_script(0, '--sweep=quick_seeds', task='3')
  _, runs = job.parse(slurm._parser(), ['nth_farthest', '--sweep=quick_seeds'])
  command = ' '.join(runs[3].command(str(job.ROOT / '.venv/bin/python')))
  assert output == (
    'srun --label --kill-on-bad-exit=0 --wait=60 --nodes=1 --ntasks-per-node=1 '
    f'{job.ROOT}/launch/slurm_task.sh {command}\n'
  )


@pytest.mark.parametrize(
  ('nodes', 'used'), [('4', 4), ('3', 2), ('2', 2), ('1', 1)]
)
def test_start_uses_the_most_nodes_that_divide_the_batch(
  run_script, monkeypatch, nodes, used
):
  monkeypatch.setattr(slurm, '_batch_size', lambda run, python: 64)
  flags = ['--nodes=4', '--min_nodes=1', '--gpus_per_node=8']
  _, output = run_script(0, *flags, SLURM_JOB_NUM_NODES=nodes)
  assert f' --nodes={used} --ntasks-per-node=8 ' in output


def test_preempted_job_is_requeued_without_limit(run_script):
  for _ in range(9):
    assert 'scontrol requeue 12' in run_script(75)[1]


def test_job_ended_by_slurm_is_not_requeued(run_script):
  code, output = run_script(75, signalled=True)
  assert code == 75
  assert 'scontrol' not in output


def test_number_of_restarts_is_limited(run_script):
  flags = ['--max_restarts=2']
  assert 'restart 1 of 2' in run_script(1, *flags)[1]
  assert 'scontrol requeue 12' in run_script(75, *flags)[1]
  assert 'restart 2 of 2' in run_script(134, *flags)[1]
  code, output = run_script(134, *flags)
  assert code == 134
  assert 'scontrol' not in output
  # A job that is then requeued by hand starts to count again.
  assert 'restart 1 of 2' in run_script(1, *flags)[1]


@pytest.mark.parametrize(
  ('flags', 'workdir'),
  [([], 'runs/nth_farthest-quick'), (['--workdir=a b'], 'a b')],
)
def test_newer_checkpoint_resets_the_number_of_restarts(
  run_script, tmp_path, flags, workdir
):
  outputs = []
  for step in (200, 200, 1000, 1000, 1000):
    for name in (str(step), 'quarantined/9000'):
      folder = tmp_path / workdir / 'checkpoints' / name
      folder.mkdir(parents=True, exist_ok=True)
      (folder / 'manifest.json').touch()
    (tmp_path / workdir / 'checkpoints/8000').mkdir(exist_ok=True)
    outputs.append(run_script(1, '--max_restarts=2', *flags)[1])
  counts = re.findall(r'restart (\d) of 2', ''.join(outputs))
  assert counts == ['1', '2', '1', '2']
  assert 'requeue' not in outputs[-1]


def test_crash_that_cannot_be_counted_is_not_requeued(run_script, tmp_path):
  (tmp_path / 'runs/slurm').rmdir()  # As if the disk were full.
  code, output = run_script(1, error='No such file or directory')
  assert code == 1
  assert 'scontrol' not in output


def test_variables_of_the_user_do_not_change_the_count(run_script):
  for count in (1, 2, 3):
    assert f'restart {count} of 3' in run_script(1, CDPATH='.:..')[1]


def test_array_task_requeues_only_itself(run_script):
  flags = ['--sweep=quick_seeds', '--max_restarts=1']
  for task in '34':  # Each has its own count.
    _, output = run_script(1, *flags, task=task, SLURM_ARRAY_JOB_ID='12')
    assert f'scontrol requeue 12_{task}\n' in output


def start_task(command, tasks=2):
  return subprocess.Popen(
    [job.ROOT / 'launch/slurm_task.sh', *command],
    env=os.environ | {'SLURM_NTASKS': str(tasks)},
    stdout=subprocess.PIPE,
    start_new_session=True,
  )


@pytest.mark.parametrize(
  ('code', 'expected'),
  [(0, 0), (1, 1), (75, 75), (76, 201), (77, 202), (134, 134)],
)
def test_code_that_rules_out_a_restart_is_the_highest_of_a_task(code, expected):
  with start_task(['bash', '-c', f'exit {code}']) as task:
    assert task.wait(10) == expected


@pytest.mark.parametrize('send', [os.kill, os.killpg])
def test_task_outlives_the_trainer_that_saves(send):
  trainer = 'trap "sleep 1; exit 75" TERM; echo ready; sleep 9 & wait'
  with start_task(['bash', '-c', trainer]) as task:
    assert task.stdout.readline() == b'ready\n'
    send(task.pid, signal.SIGTERM)
    assert task.wait(8) == 75


def test_single_task_is_the_trainer():
  with start_task(['bash', '-c', 'echo $$'], tasks=1) as task:
    assert int(task.stdout.readline()) == task.pid
