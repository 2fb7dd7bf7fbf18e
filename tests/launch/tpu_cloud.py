"""A fake cloud for the tests of launch/tpu_*.py.

The scripts for the workers really run on this machine, each in its own home
folder, with a trainer that exits as the scenario says.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys

from launch import job
from launch import processes
from launch import tpu_slice
from launch import tpu_vm
from tests.launch import fake_gcloud
from tests.launch.programs import write_program

# Each start exits with the code in the next line of the worker's file.
TRAINER = """\
#!/bin/sh
echo "$*" >>"$FAKE_GCLOUD/starts.$WORKER"
count=$(wc -l <"$FAKE_GCLOUD/starts.$WORKER")
mkdir -p runs/x
echo "$count" >runs/x/result
echo "trainer $WORKER, start $count"
code=$(sed -n "${count}p" "$FAKE_GCLOUD/codes.$WORKER")
if [ "$code" = waits ]; then
  trap 'echo saved; exit 75' TERM
  while :; do sleep 0.05; done
fi
if [ "$code" = slow ]; then sleep 1.5; code=0; fi
exit "${code:-0}"
"""
SETUP = """\
[ "$ACCELERATOR" = tpu ] || exit 1
cd "$(dirname "$0")/.."
mkdir -p .venv/bin
cp trainer .venv/bin/python
chmod +x .venv/bin/python
exit "$(cat "$FAKE_GCLOUD/setup" 2>/dev/null || echo 0)"
"""
# Programs of TPU VMs that this machine may lack.
PROGRAMS = {
  'hostname': 'echo "t1v-n-abc-w-$WORKER"',
  'sudo': 'echo "sudo $*" >>"$FAKE_GCLOUD/root.$WORKER"',
  'curl': 'echo key',
  'lsb_release': 'echo jammy',
  'mountpoint': '[ -e "$HOME/mounted" ]',
  'fusermount': 'exit 1',
  'gcsfuse': 'echo "$*" >>"$FAKE_GCLOUD/mounts.$WORKER"\ntouch "$HOME/mounted"',
}


def make(tmp_path, monkeypatch):
  """Returns a cloud without a slice; the checkout has a fake trainer."""
  root = tmp_path / 'checkout'
  for path in ('experiments/nth_farthest', 'launch'):
    (root / path).mkdir(parents=True)
  for name in ('train.py', 'sweep.py'):
    path = f'experiments/nth_farthest/{name}'
    shutil.copy(job.ROOT / path, root / path)
  write_program(root / 'launch/setup.sh', SETUP)
  write_program(root / 'launch/find_python.sh', 'exit 1')
  (root / 'trainer').write_text(TRAINER)
  (root / '.gitignore').write_text('secret\n')
  (root / 'secret').touch()
  subprocess.run(['git', 'init', '-q', root], check=True)
  monkeypatch.setattr(job, 'ROOT', root)
  programs = tmp_path / 'bin'
  programs.mkdir()
  for name, text in PROGRAMS.items():
    write_program(programs / name, text)
  fake = [sys.executable, '-S', '-E', fake_gcloud.__file__]
  write_program(programs / 'gcloud', f'exec {shlex.join(fake)} "$@"')
  monkeypatch.setenv('PATH', f'{programs}:{os.environ["PATH"]}')
  for name in ('POLL_SECONDS', '_LONGEST_PAUSE'):
    monkeypatch.setattr(tpu_slice, name, 0.2)
  monkeypatch.setattr(processes, '_LONGEST_PAUSE', 0.2)
  monkeypatch.setattr(tpu_slice, '_TICK', 0.02)
  folder = tmp_path / 'cloud'
  folder.mkdir()
  here = tmp_path / 'here'
  here.mkdir()
  monkeypatch.chdir(here)
  return Cloud(folder, monkeypatch)


class Cloud:
  """Runs the launcher in a scenario and reads what it did."""

  def __init__(self, folder, monkeypatch):
    self.folder = folder
    self._scenario = {
        'bucket': 'True', 'create': [0], 'hosts': 1, 'type': 'v5litepod-8',
        'states': ['ACTIVE'], 'nodes': ['READY'], 'drops': [0],
    }  # fmt: skip
    monkeypatch.setenv('FAKE_GCLOUD', str(folder))

  def launch(self, *flags, codes=((),), **scenario):
    """Returns the launcher's exit code.

    Args:
      *flags: of the launcher.
      codes: for each worker, the exit code of each start of the trainer.
      **scenario: see fake_gcloud.py.
    """
    if len(codes) == 2:
      scenario |= {'hosts': 2, 'type': 'v5p-16'}
    text = json.dumps(self._scenario | scenario)
    (self.folder / 'scenario').write_text(text)
    for worker, each in enumerate(codes):
      lines = ''.join(f'{code}\n' for code in each)
      (self.folder / f'codes.{worker}').write_text(lines)
    try:
      return tpu_vm.main(['nth_farthest', *flags])
    except SystemExit as exit_:
      return exit_.code

  def calls(self):
    path = self.folder / 'calls'
    return [json.loads(line) for line in path.read_text().splitlines()]

  def verbs(self):
    """Returns the verb and object of every call that is no describe."""
    return [' '.join(call[4:6]) for call in actions(self.calls())]

  def starts(self, worker=0):
    path = self.folder / f'starts.{worker}'
    return path.read_text().splitlines() if path.exists() else []

  def alive(self):
    return (self.folder / 'exists').exists()


def actions(calls):
  return [call for call in calls if 'describe' not in call]
