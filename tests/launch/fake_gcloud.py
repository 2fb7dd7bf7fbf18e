"""A fake gcloud whose slice is a folder, with a home folder for each worker.

It records its arguments, follows the scenario in $FAKE_GCLOUD and really runs
the scripts of ssh in the home of each worker.
"""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

FOLDER = pathlib.Path(os.environ.get('FAKE_GCLOUD', '.'))


def main(arguments):
  """Returns the exit code."""
  with (FOLDER / 'calls').open('a') as calls:
    calls.write(json.dumps(['gcloud', *arguments]) + '\n')
  scenario = json.loads((FOLDER / 'scenario').read_text())
  verb = ' '.join(arguments[2:4])
  if arguments[:2] == ['storage', 'buckets']:
    sys.stdout.write(scenario['bucket'] + '\n')
    return 0
  if verb == 'queued-resources create':
    return create(scenario)
  if verb == 'queued-resources describe':
    return describe(scenario)
  if verb == 'queued-resources delete':
    return delete()
  if verb == 'tpu-vm describe':
    state = next_value('node', scenario['nodes'])
    json.dump({'state': state}, sys.stdout)
    return 0
  if verb == 'tpu-vm ssh':
    return ssh(scenario, arguments)
  if verb == 'tpu-vm scp':
    return scp(arguments)
  raise AssertionError(arguments)


def create(scenario):
  code = next_value('create', scenario['create'])
  if code:
    sys.stderr.write('ERROR: quota exceeded\n')
    return code
  for worker in range(scenario['hosts']):
    (FOLDER / f'homes/{worker}').mkdir(parents=True)
  (FOLDER / 'exists').touch()
  return 0


def describe(scenario):
  if not (FOLDER / 'exists').exists():
    sys.stderr.write('ERROR: NOT_FOUND: no such resource\n')
    return 1
  state = next_value('state', scenario['states'])
  if state != 'ACTIVE':
    power_off()
  node = {'acceleratorType': scenario['type']}
  request = {'state': {'state': state}, 'tpu': {'nodeSpec': [{'node': node}]}}
  json.dump(request, sys.stdout)
  return 0


def delete():
  if not (FOLDER / 'exists').exists():
    sys.stderr.write('ERROR: NOT_FOUND: no such resource\n')
    return 1
  power_off()
  shutil.rmtree(FOLDER / 'homes')
  (FOLDER / 'exists').unlink()
  return 0


def ssh(scenario, arguments):
  (script,) = [a[10:] for a in arguments if a.startswith('--command=')]
  drops = 'attempt=' in script and next_value('drop', scenario['drops'])
  if drops == 'at once':
    return 255
  workers = []
  for home in homes():
    environment = os.environ | {'HOME': str(home), 'WORKER': home.name}
    workers.append(
      subprocess.Popen(['sh', '-c', script], cwd=home, env=environment)
    )
  if drops:
    time.sleep(0.5)
    for worker in workers:
      worker.kill()
    return 255
  return max(worker.wait() for worker in workers)


def scp(arguments):
  source, target = [a for a in arguments[4:] if not a.startswith('--')]
  if ':' in target:
    for home in homes():
      shutil.copy(source, home / target.partition(':')[2])
    return 0
  source = FOLDER / 'homes/0' / source.partition(':')[2]
  shutil.copytree(source, pathlib.Path(target) / 'runs', dirs_exist_ok=True)
  return 0


def power_off():
  for home in homes():
    for name in ('wrapper', 'pid'):
      path = home / 'rmc_jax_job' / name
      if path.exists():
        with contextlib.suppress(ProcessLookupError):
          os.kill(int(path.read_text()), signal.SIGKILL)


def homes():
  return sorted((FOLDER / 'homes').glob('*'))


def next_value(name, values):
  """Returns the next of `values`; after the last one, the last one again."""
  path = FOLDER / f'count.{name}'
  count = int(path.read_text()) if path.exists() else 0
  path.write_text(str(count + 1))
  return values[min(count, len(values) - 1)]


if __name__ == '__main__':
  sys.exit(main(sys.argv[1:]))
