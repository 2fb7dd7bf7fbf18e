"""A cloud for the tests of launch/tpu_*.py: fake_gcloud.py and what it needs.

What is sent to the workers is really run on this machine, each in a home of its
own, with a trainer that ends as the scenario says.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys

from launch import job
from launch import tpu_slice
from launch import tpu_vm
from tests.launch import fake_gcloud

# Ends with the code of its line in `codes`: one for each start of this worker.
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
#!/bin/sh
[ "$ACCELERATOR" = tpu ] || exit 1
cd "$(dirname "$0")/.."
mkdir -p .venv/bin
cp trainer .venv/bin/python
chmod +x .venv/bin/python
exit "$(cat "$FAKE_GCLOUD/setup" 2>/dev/null || echo 0)"
"""
# What the machines have and this one may not.
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
  """A slice to be asked for, and a checkout with a trainer that is quick."""
  root = tmp_path / 'checkout'
  for path in ('experiments/nth_farthest', 'launch'):
    (root / path).mkdir(parents=True)
  for name in ('train.py', 'sweep.py'):
    path = f'experiments/nth_farthest/{name}'
    shutil.copy(job.ROOT / path, root / path)
  write_program(root / 'launch/setup.sh', SETUP)
  write_program(root / 'launch/find_python.sh', '#!/bin/sh\nexit 1\n')
  (root / 'trainer').write_text(TRAINER)
  (root / '.gitignore').write_text('secret\n')
  (root / 'secret').touch()
  subprocess.run(['git', 'init', '-q', root], check=True)
  monkeypatch.setattr(job, 'ROOT', root)
  programs = tmp_path / 'bin'
  programs.mkdir()
  for name, text in PROGRAMS.items():
    write_program(programs / name, f'#!/bin/sh\n{text}\n')
  fake = [sys.executable, '-S', '-E', fake_gcloud.__file__]
  write_program(
    programs / 'gcloud', f'#!/bin/sh\nexec {shlex.join(fake)} "$@"\n'
  )
  monkeypatch.setenv('PATH', f'{programs}:{os.environ["PATH"]}')
  for name in ('POLL_SECONDS', '_LONGEST_PAUSE'):
    monkeypatch.setattr(tpu_slice, name, 0.2)
  monkeypatch.setattr(tpu_slice, '_TICK', 0.02)
  folder = tmp_path / 'cloud'
  folder.mkdir()
  here = tmp_path / 'here'
  here.mkdir()
  monkeypatch.chdir(here)
  return Cloud(folder, monkeypatch)


class Cloud:
  """The fake, and what came of a launch."""

  def __init__(self, folder, monkeypatch):
    self.folder = folder
    self._scenario = {
        'bucket': 'True', 'create': [0], 'hosts': 1, 'type': 'v5litepod-8',
        'states': ['ACTIVE'], 'nodes': ['READY'], 'drops': [0],
    }  # fmt: skip
    monkeypatch.setenv('FAKE_GCLOUD', str(folder))

  def launch(self, *flags, codes=((),), **scenario):
    """Returns the launcher's exit code; codes: of each start, by worker."""
    if len(codes) == 2:
      scenario |= {'hosts': 2, 'type': 'v5p-16'}
    text = json.dumps(self._scenario | scenario)
    (self.folder / 'scenario').write_text(text)
    for worker, each in enumerate(codes):
      lines = ''.join(f'{code}\n' for code in each)
      (self.folder / f'codes.{worker}').write_text(lines)
    try:
      return tpu_vm.main(['nth_farthest', *flags])
    except SystemExit as ended:
      return ended.code

  def calls(self):
    path = self.folder / 'calls'
    return [json.loads(line) for line in path.read_text().splitlines()]

  def verbs(self):
    """What was done, in short, without the looking."""
    return [' '.join(call[4:6]) for call in doing(self.calls())]

  def starts(self, worker=0):
    path = self.folder / f'starts.{worker}'
    return path.read_text().splitlines() if path.exists() else []

  def alive(self):
    return (self.folder / 'exists').exists()


def doing(calls):
  return [call for call in calls if 'describe' not in call]


def write_program(path, text):
  path.write_text(text)
  path.chmod(0o755)
