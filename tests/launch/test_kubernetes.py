"""Tests `launch.kubernetes`: valid manifests, names and refused options.

tests/launch/goldens/ has whole manifests.
"""

import json
import math
import os
import pathlib
import re
import runpy

import jsonschema
import kubernetes_validate
import pytest
import yaml

from launch import job
from launch import kubernetes
from launch import resources
from tests.launch.programs import write_program

SCHEMA = pathlib.Path(__file__).parent / 'schemas/jobset.json'
# The oldest release with every field, and the newest known one.
RELEASES = ('1.29', '1.37')
NEEDED = ('--image=registry.example/rmc:1', '--claim=runs')
MACHINES = {
  'cpu': [],
  'cpus': ['--nodes=3', '--cpus=4', '--memory=16Gi'],
  'gpu': ['--gpus=1', '--queue=team', '--namespace=research'],
  'gpus': ['--nodes=2', '--gpus=8', '--gpu_type=nvidia-l4', '--spot'],
  'tpu': ['--tpu=v5e-4'],
  'tpus': ['--tpu=v5e-256', '--node_selector=zone=a'],
}


def dry_run(capsys, *flags, experiment='nth_farthest'):
  assert kubernetes.main([experiment, '--dry_run', *NEEDED, *flags]) == 0
  return capsys.readouterr().out


def render(capsys, *flags):
  return list(yaml.safe_load_all(dry_run(capsys, *flags)))


def job_spec(manifest):
  if manifest['kind'] == 'Job':
    return manifest['spec']
  (replicated,) = manifest['spec']['replicatedJobs']
  return replicated['template']['spec']


def pod_spec(manifest):
  return job_spec(manifest)['template']['spec']


def trainer(manifest):
  (container,) = pod_spec(manifest)['containers']
  return container


@pytest.mark.parametrize('kind', ['jobset', 'job'])
@pytest.mark.parametrize('machine', MACHINES)
def test_manifests_satisfy_the_published_schemas(capsys, kind, machine):
  for manifest in render(capsys, f'--kind={kind}', *MACHINES[machine]):
    if manifest['kind'] == 'JobSet':
      jsonschema.validate(manifest, json.loads(SCHEMA.read_text()))
      manifest = {
        'apiVersion': 'batch/v1',
        'kind': 'Job',
        'metadata': manifest['metadata'],
        'spec': job_spec(manifest),
      }
    for release in RELEASES:
      kubernetes_validate.validate(manifest, release, strict=True)


def test_only_slices_of_several_hosts_are_exclusive(capsys):
  (several,) = render(capsys, '--tpu=v5e-16')
  (annotation,) = several['metadata']['annotations']
  assert annotation.endswith('/exclusive-topology')
  # With one host, it would keep other runs from the rest of its node pool.
  (one,) = render(capsys, '--tpu=v5e-8')
  assert 'annotations' not in one['metadata']


@pytest.mark.parametrize('tpu', resources.TPUS)
def test_chips_of_a_slice_equal_its_topology(capsys, tpu):
  (manifest,) = render(capsys, f'--tpu={tpu}')
  selector = pod_spec(manifest)['nodeSelector']
  topology = selector['cloud.google.com/gke-tpu-topology']
  chips = int(trainer(manifest)['resources']['limits']['google.com/tpu'])
  assert job_spec(manifest)['completions'] * chips == math.prod(
    map(int, topology.split('x'))
  )


@pytest.mark.parametrize('kind', ['jobset', 'job'])
def test_exit_code_decides_about_a_restart(capsys, kind):
  (*_, manifest) = render(capsys, f'--kind={kind}', '--nodes=2')
  rules = job_spec(manifest)['podFailurePolicy']['rules']
  codes = [
    (rule['action'], rule['onExitCodes']['values'])
    for rule in rules
    if 'onExitCodes' in rule
  ]
  assert codes == [
    ('FailJob', [job.DIVERGED, job.CONFIGURATION_ERROR]),
    ('Ignore', [job.PREEMPTED]),
  ]
  for rule in rules[:2]:
    assert rule['onExitCodes']['containerName'] == trainer(manifest)['name']
  assert pod_spec(manifest)['restartPolicy'] == 'Never'


def test_single_pod_needs_no_service(capsys):
  kinds = [manifest['kind'] for manifest in render(capsys, '--kind=job')]
  assert kinds == ['Job']


@pytest.mark.parametrize('experiment', job.experiments())
def test_names_of_a_sweep_are_valid_and_unique(capsys, experiment):
  path = job.ROOT / f'experiments/{experiment}/sweep.py'
  for sweep, runs in runpy.run_path(str(path))['SWEEPS'].items():
    flags = [f'--sweep={sweep}', '--tpu=v5e-256']
    text = dry_run(capsys, *flags, experiment=experiment)
    names = re.findall(r'^metadata:\n  name: "(.*)"$', text, re.MULTILINE)
    assert len(set(names)) == len(names) == len(runs)
    for name in names:
      assert re.fullmatch('[a-z]([a-z0-9-]*[a-z0-9])?', name)
      assert len(f'{name}-host-0-63-abcde') <= 63


def test_long_names_are_shortened_and_stay_unique(capsys):
  flags = ['--sweep=quick_seeds', f'--name={"a" * 60}']
  names = [m['metadata']['name'] for m in render(capsys, *flags)]
  assert len(set(names)) == len(names) > 1
  assert all(name.startswith('a' * 30) for name in names)
  assert all(len(f'{name}-host-0-9999-abcde') <= 63 for name in names)


def test_flags_of_the_trainer_are_escaped(capsys):
  flags = ['--a=$(JOB_COMPLETION_INDEX)', '--b=$$', '--c="é😀: #\n{x}']
  (manifest,) = render(capsys, *flags)
  command = trainer(manifest)['command']
  assert [word.replace('$$', '$') for word in command[4:7]] == flags
  assert command[4] == '--a=$$(JOB_COMPLETION_INDEX)'


@pytest.fixture
def kubectl(tmp_path, monkeypatch):
  """A kubectl that records its arguments and input, and exits with 3."""
  record = [f'echo "$*" >{tmp_path}/arguments', f'cat >{tmp_path}/input']
  write_program(tmp_path / 'kubectl', *record, 'exit 3')
  monkeypatch.setenv('PATH', f'{tmp_path}:{os.environ["PATH"]}')
  return tmp_path


@pytest.mark.parametrize('kind', ['jobset', 'job'])
def test_kubectl_reads_the_output_of_the_dry_run(capsys, kubectl, kind):
  flags = ['--sweep=quick_seeds', '--nodes=2', f'--kind={kind}']
  text = dry_run(capsys, *flags)
  assert not (kubectl / 'arguments').exists()
  assert kubernetes.main(['nth_farthest', *NEEDED, *flags]) == 3
  assert (kubectl / 'arguments').read_text() == 'create --filename=-\n'
  assert (kubectl / 'input').read_bytes() == text.encode()


def test_missing_kubectl_is_reported(capsys, monkeypatch):
  monkeypatch.setattr(kubernetes.shutil, 'which', lambda name: None)
  with pytest.raises(SystemExit) as exit_info:
    kubernetes.main(['nth_farthest', *NEEDED])
  assert exit_info.value.code == 77
  assert 'kubectl' in capsys.readouterr().err


@pytest.mark.parametrize(
  ('flags', 'message'),
  [
    (['--tpu=v5e-3'], "--tpu.*'v5e-3'.*v4-8"),
    (['--tpu=v5e-4', '--nodes=2'], '--tpu=v5e-4.*--nodes'),
    (['--tpu=v5e-4', '--gpus=2'], '--tpu=v5e-4.*--gpus'),
    (['--gpu_type=nvidia-l4'], '--gpu_type=nvidia-l4.*--gpus'),
    (['--memory=lots'], "--memory.*64Gi.*'lots'"),
    (['--name=My_Run'], "--name.*lowercase.*'My_Run'"),
    (['--claim=a/b'], "--claim.*'a/b'"),
    (['--node_selector=zone'], "--node_selector.*LABEL=VALUE.*'zone'"),
    (['--nodes=0'], "--nodes.*at least 1.*'0'"),
    (['--kind=pod'], "--kind.*'pod'"),
    (['--workdir=/tmp/x'], '--workdir=/tmp/x .*below /claim'),
    (['--workdir=../x'], r'--workdir=\.\./x .*below /claim'),
  ],
)
def test_invalid_option_is_named_with_its_value(capsys, flags, message):
  with pytest.raises(SystemExit) as exit_info:
    kubernetes.main(['nth_farthest', '--dry_run', *NEEDED, *flags])
  assert exit_info.value.code == 77
  captured = capsys.readouterr()
  assert re.search(message, captured.err)
  assert captured.out == ''


@pytest.mark.parametrize('missing', NEEDED)
def test_image_and_claim_are_required(capsys, missing):
  given = [flag for flag in NEEDED if flag != missing]
  with pytest.raises(SystemExit) as exit_info:
    kubernetes.main(['nth_farthest', '--dry_run', *given])
  assert exit_info.value.code == 77
  assert missing.partition('=')[0] in capsys.readouterr().err
