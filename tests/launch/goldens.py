"""Golden files of dry runs: scripts, manifests and command lines.

python -m tests.launch.goldens           prints how the output differs
python -m tests.launch.goldens --write   accepts the output
"""

import contextlib
import difflib
import importlib
import io
import os
import pathlib
import shlex
import sys
import tempfile
from unittest import mock

import yaml

from launch import job
from launch import local
from launch import slurm
from tests.launch.programs import write_program

FOLDER = pathlib.Path(__file__).parent / 'goldens'
# An experiment of the goldens' own, so that no change to a real one matters.
SWEEP = """
PRESETS = {'small': {}}
SWEEPS = {
  'seeds': {f'seed_{i}': {'preset': 'small', 'seed': i} for i in range(2)}
}
"""
_KUBERNETES = 'kubernetes toy --image=registry.example/rmc:1 --claim=runs'
CASES = {
  'local_processes.sh': ('local toy --preset=small --processes=2 --lr=0.1'),
  'local_sweep.sh': 'local toy --sweep=seeds --parallel=2',
  'slurm_cpu.sbatch': 'slurm toy',
  'slurm_gpus.sbatch': (
    'slurm toy --preset=small --nodes=3 --gpus_per_node=8 --cpus_per_task=5 '
    '--time=1-00:00:00 --partition=long --account=mine --grace=240 '
    '--sbatch=--constraint=a100 --exclude=n[1-2] '
    '--srun_arg=--container-image=registry.example/rmc:1'
  ),
  'slurm_elastic.sbatch': (
    'slurm toy --nodes=4 --min_nodes=1 --gpus_per_node=8'
  ),
  'slurm_sweep.sbatch': (
    'slurm toy --sweep=seeds --parallel=2 --max_restarts=7 '
    '--gpus_per_node=8 --processes_per_node=2'
  ),
  'jobset_cpu.json': f'{_KUBERNETES} --cpus=8 --memory=32Gi --queue=team',
  'jobset_gpus.json': (
    f'{_KUBERNETES} --preset=small --nodes=2 --gpus=8 --gpu_type=nvidia-l4 '
    '--grace=300 --max_restarts=7 --spot --workdir=runs/x'
  ),
  'jobset_tpus.json': (
    f'{_KUBERNETES} --tpu=v5e-256 --node_selector=zone=a '
    '--service_account=writer'
  ),
  'jobset_slices.json': (
    'kubernetes toy --image=registry.example/rmc:1 --tpu=v7x-16 --slices=2 '
    '--workdir=gs://mine/run --env=A=b --pod_annotation=example.com/c=d'
  ),
  'jobset_sweep.json': (
    f'{_KUBERNETES} --sweep=seeds --gpus=1 --name=mine --namespace=research'
  ),
  'skypilot_gpus.yaml': (
    'skypilot toy --preset=small --gpus=A100:8 --nodes=2 --bucket=gs://mine '
    '--workdir=runs/x --max_restarts=7 --env=A=b'
  ),
  'skypilot_tpus.yaml': (
    'skypilot toy --sweep=seeds --tpu=v5p-16 --infra=gcp/us-east5/us-east5-a '
    '--spot --bucket=gs://mine'
  ),
}


def render(command: str) -> str:
  """Returns the output of a dry run, on a machine of four cores, no GPUs."""
  launcher, *arguments = shlex.split(command)
  output = io.StringIO()
  with contextlib.ExitStack() as stack:
    folder = stack.enter_context(tempfile.TemporaryDirectory())
    root = pathlib.Path(folder).resolve()
    experiment = root / 'experiments/toy'
    experiment.mkdir(parents=True)
    (experiment / 'train.py').touch()
    (experiment / 'sweep.py').write_text(SWEEP)
    write_program(
      root / '.venv/bin/python', """echo '{"config": {"batch_size": 64}}'"""
    )
    environment = {
      name: value
      for name, value in os.environ.items()
      if name not in ('GLIBC_TUNABLES', 'PYTHONPATH')
    }
    stack.enter_context(contextlib.chdir(root))
    stack.enter_context(mock.patch.dict(os.environ, environment, clear=True))
    stack.enter_context(mock.patch.object(job, 'ROOT', root))
    stack.enter_context(mock.patch.object(local, '_cores', return_value='0123'))
    stack.enter_context(mock.patch.object(local, '_gpus', list))
    stack.enter_context(
      mock.patch.object(local, '_free_port', return_value=9876)
    )
    nodes = ['long 64 UNLIMITED gpu:a100:8', 'short* 48 40 gpu:8(S:0-1)']
    stack.enter_context(mock.patch.object(slurm, '_nodes', return_value=nodes))
    stack.enter_context(mock.patch('shutil.which', lambda name: name))
    stack.enter_context(contextlib.redirect_stdout(output))
    main = importlib.import_module(f'launch.{launcher}').main
    assert main([*arguments, '--dry_run']) == 0
    return output.getvalue().replace(str(root), '/checkout')


def parse(name: str, text: str):
  """Returns the content of a golden file, in the form that is compared."""
  is_data = name.endswith(('.yaml', '.json'))
  return list(yaml.safe_load_all(text)) if is_data else text


def main() -> None:
  """Prints the differences and, with --write, accepts them."""
  for name, command in CASES.items():
    path, text = FOLDER / name, render(command)
    old = path.read_text() if path.exists() else ''
    sys.stdout.writelines(
      difflib.unified_diff(
        old.splitlines(True), text.splitlines(True), name, command
      )
    )
    if sys.argv[1:] == ['--write']:
      path.write_text(text)


if __name__ == '__main__':
  main()
