"""Tests `launch.kubernetes` and `launch.pod`.

tests/launch/goldens/ has whole manifests.
"""

import copy
import functools
import json
import math
import os
import re
import runpy

import jsonschema
import pytest

from launch import job
from launch import kubernetes
from launch import resources
from tests.launch.manifests import dry_run
from tests.launch.manifests import job_set_validator
from tests.launch.manifests import job_spec
from tests.launch.manifests import NEEDED
from tests.launch.manifests import pod_spec
from tests.launch.manifests import render
from tests.launch.manifests import trainer
from tests.launch.manifests import validate
from tests.launch.programs import write_program

MACHINES = {
  'cpu': [],
  'cpus': ['--nodes=3', '--cpus=4', '--memory=16Gi'],
  'gpu': ['--gpus=1', '--queue=team', '--priority=low', '--namespace=research'],
  'gpus': ['--nodes=2', '--gpus=8', '--gpu_type=nvidia-l4', '--spot'],
  'tpu': ['--tpu=v5e-4'],
  'tpus': ['--tpu=v5e-256', '--node_selector=zone=a', '--env=A=b=c'],
  'bucket': ['--workdir=s3://bucket/run', '--pod_annotation=a.example/b=c'],
}


@pytest.mark.parametrize('machine', MACHINES)
def test_manifests_satisfy_the_published_schemas(capsys, machine):
  (manifest,) = render(capsys, *MACHINES[machine])
  validate(manifest)


@pytest.mark.parametrize(
  ('path', 'value', 'message'),
  [
    (('spec', 'replicas'), 2, "'replicas' was unexpected"),
    (('spec', 'failurePolicy', 'maxRestarts'), '3', "'3' is not of type"),
    (('spec', 'failurePolicy', 'rules', 0, 'action'), 'Fail', 'is not one of'),
    (
      ('spec', 'replicatedJobs', 0, 'template', 'spec', 'backofLimit'),
      0,
      "'backofLimit' was unexpected",
    ),
  ],
)
def test_schema_of_a_job_set_refuses_mistakes(capsys, path, value, message):
  (manifest,) = render(capsys)
  broken = copy.deepcopy(manifest)
  *parents, name = path
  functools.reduce(lambda part, key: part[key], parents, broken)[name] = value
  with pytest.raises(jsonschema.ValidationError, match=message):
    job_set_validator().validate(broken)


def test_queue_and_priority_are_labels_of_the_run_only(capsys):
  (manifest,) = render(capsys, '--queue=team', '--priority=low')
  assert manifest['metadata']['labels'] == {
    'app.kubernetes.io/name': 'rmc-jax',
    'kueue.x-k8s.io/queue-name': 'team',
    'kueue.x-k8s.io/priority-class': 'low',
  }
  # Kueue would otherwise queue its Jobs too.
  assert 'kueue' not in json.dumps(manifest['spec'])


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


def test_a_run_of_several_slices_has_a_job_for_each(capsys):
  (manifest,) = render(capsys, '--tpu=v5e-16', '--slices=3')
  (replicated,) = manifest['spec']['replicatedJobs']
  assert replicated['replicas'] == 3
  assert replicated['template']['spec']['completions'] == 4
  (annotation,) = manifest['metadata']['annotations']
  assert annotation.endswith('/exclusive-topology')
  # JAX finds the slices and hosts.
  assert not any('process' in word for word in trainer(manifest)['command'])


@pytest.mark.parametrize('experiment', job.experiments())
def test_names_of_a_sweep_are_valid_and_unique(capsys, experiment):
  path = job.ROOT / f'experiments/{experiment}/sweep.py'
  for sweep, runs in runpy.run_path(str(path))['SWEEPS'].items():
    flags = [f'--sweep={sweep}', '--tpu=v5e-256']
    text = dry_run(capsys, *flags, experiment=experiment)
    names = [item['metadata']['name'] for item in json.loads(text)['items']]
    assert len(set(names)) == len(names) == len(runs)
    for name in names:
      assert re.fullmatch('[a-z]([a-z0-9-]*[a-z0-9])?', name)
      assert len(f'{name}-host-999-63-abcde') <= 63


def test_long_names_are_shortened_and_stay_unique(capsys):
  flags = ['--sweep=quick_seeds', f'--name={"a" * 60}']
  names = [m['metadata']['name'] for m in render(capsys, *flags)]
  assert len(set(names)) == len(names) > 1
  assert all(name.startswith('a' * 30) for name in names)
  assert all(len(f'{name}-host-999-9999-abcde') <= 63 for name in names)


def test_flags_of_the_trainer_are_escaped(capsys):
  flags = ['--a=$(JOB_COMPLETION_INDEX)', '--b=$$', '--c="é😀: #\n{x}']
  (manifest,) = render(capsys, *flags)
  command = trainer(manifest)['command']
  assert [word.replace('$$', '$') for word in command[5:8]] == flags
  assert command[5] == '--a=$$(JOB_COMPLETION_INDEX)'


def test_variables_are_literal_and_replace_the_default(capsys):
  flags = ['--env=A=$(B)=c', '--env=GLIBC_TUNABLES=']
  (manifest,) = render(capsys, *flags)
  assert trainer(manifest)['env'] == [
    {'name': 'GLIBC_TUNABLES', 'value': ''},
    {'name': 'A', 'value': '$$(B)=c'},
  ]


def test_annotations_of_pods_are_not_those_of_the_run(capsys):
  (manifest,) = render(capsys, '--pod_annotation=example.com/a=b=c')
  annotations = job_spec(manifest)['template']['metadata']['annotations']
  assert annotations == {'example.com/a': 'b=c'}
  assert 'annotations' not in manifest['metadata']


@pytest.mark.parametrize('machine', ['--nodes=2', '--tpu=v5e-16'])
def test_processes_wait_an_hour_for_each_other(capsys, machine):
  own = '--initialization_timeout=60'
  (manifest,) = render(capsys, machine, own)
  command = trainer(manifest)['command']
  # The last one counts.
  waits = [word for word in command if 'initialization' in word]
  assert waits == ['--initialization_timeout=3600', own]


def test_a_run_in_a_bucket_needs_no_claim(capsys):
  flags = ['--image=i', '--workdir=gs://bucket/run', '--sweep=quick_seeds']
  assert kubernetes.main(['nth_farthest', '--dry_run', *flags]) == 0
  items = json.loads(capsys.readouterr().out)['items']
  for seed, manifest in enumerate(items):
    container = trainer(manifest)
    assert f'--workdir=gs://bucket/run/seed_{seed}' in container['command']
    assert {'volumeMounts', 'workingDir'}.isdisjoint(container)
    assert 'volumes' not in pod_spec(manifest)


@pytest.fixture
def kubectl(tmp_path, monkeypatch):
  """A kubectl that records its arguments and input, and exits with 3."""
  record = [f'echo "$*" >{tmp_path}/arguments', f'cat >{tmp_path}/input']
  write_program(tmp_path / 'kubectl', *record, 'exit 3')
  monkeypatch.setenv('PATH', f'{tmp_path}:{os.environ["PATH"]}')
  return tmp_path


def test_kubectl_reads_the_output_of_the_dry_run(capsys, kubectl):
  flags = ['--sweep=quick_seeds', '--nodes=2']
  text = dry_run(capsys, *flags)
  assert not (kubectl / 'arguments').exists()
  assert kubernetes.main(['nth_farthest', *NEEDED, *flags]) == 3
  assert (kubectl / 'arguments').read_text() == 'create --filename=-\n'
  assert (kubectl / 'input').read_bytes() == text.encode()


def test_missing_kubectl_is_reported(capsys, monkeypatch):
  monkeypatch.setenv('PATH', '')
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
    (['--workdir=/tmp/x'], '--workdir=/tmp/x .*below /claim'),
    (['--workdir=../x'], r'--workdir=\.\./x .*below /claim'),
    (['--slices=2'], '--slices=2.*--tpu=v5e-16'),
    (['--slices=2', '--tpu=v5e-8'], '--slices=2.*--tpu=v5e-16'),
    (['--env=A'], "--env.*NAME=VALUE.*'A'"),
    (['--env=1A=b'], "--env.*NAME=VALUE.*'1A=b'"),
    (['--pod_annotation=a'], "--pod_annotation.*KEY=VALUE.*'a'"),
    (['--patch=nowhere.yaml'], '--patch=nowhere.yaml.*No such file'),
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
