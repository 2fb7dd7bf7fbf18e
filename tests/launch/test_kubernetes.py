"""Tests launch/kubernetes.py: manifests, by their schemas and their meaning."""

import json
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

SCHEMA = pathlib.Path(__file__).parent / 'schemas/jobset.json'
# The oldest release that has every field, and the newest that is known.
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


def printed(capsys, *flags):
  arguments = ['nth_farthest', '--dry_run', *NEEDED, *flags]
  assert kubernetes.main(arguments) == 0
  return capsys.readouterr().out


def rendered(capsys, *flags):
  return list(yaml.safe_load_all(printed(capsys, *flags)))


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
def test_the_schemas_of_kubernetes_and_jobset_hold(capsys, kind, machine):
  for manifest in rendered(capsys, f'--kind={kind}', *MACHINES[machine]):
    if manifest['kind'] == 'JobSet':
      jsonschema.validate(manifest, json.loads(SCHEMA.read_text()))
      manifest = {
        'apiVersion': 'batch/v1',
        'kind': 'Job',
        'metadata': manifest['metadata'],
        'spec': job_spec(manifest),
      }
    for release in RELEASES:
      kubernetes_validate.validate(manifest, release, strict=True)  # Or raises.


def test_each_gpu_node_is_a_pod_that_knows_its_place(capsys):
  (manifest,) = rendered(
      capsys, '--preset=paper', '--nodes=2', '--gpus=8', '--gpu_type=nvidia-l4',
      '--grace=300', '--workdir=runs/x',
  )  # fmt: skip
  spec, pod = job_spec(manifest), pod_spec(manifest)
  assert (spec['completions'], spec['parallelism']) == (2, 2)
  assert spec['completionMode'] == 'Indexed'
  assert trainer(manifest)['command'] == [
      'python', '-P', '-m', 'experiments.nth_farthest.train',
      '--preset=paper', '--workdir=runs/x',
      '--coordinator_address='
      'nth-farthest-paper-host-0-0.nth-farthest-paper:8476',
      '--num_processes=2',
      '--process_id=$(JOB_COMPLETION_INDEX)',
  ]  # fmt: skip
  assert trainer(manifest)['resources'] == {'limits': {'nvidia.com/gpu': '8'}}
  assert pod['nodeSelector'] == {
    'cloud.google.com/gke-accelerator': 'nvidia-l4'
  }
  assert [rule['key'] for rule in pod['tolerations']] == ['nvidia.com/gpu']
  assert pod['terminationGracePeriodSeconds'] == 300
  assert 'env' not in trainer(manifest)


def test_a_tpu_slice_is_all_of_its_hosts_and_jax_finds_them(capsys):
  (manifest,) = rendered(capsys, '--tpu=v5e-256')
  spec, pod = job_spec(manifest), pod_spec(manifest)
  assert (spec['completions'], spec['parallelism']) == (64, 64)
  assert pod['nodeSelector'] == {
    'cloud.google.com/gke-tpu-accelerator': 'tpu-v5-lite-podslice',
    'cloud.google.com/gke-tpu-topology': '16x16',
  }
  assert trainer(manifest)['resources'] == {'limits': {'google.com/tpu': '4'}}
  assert not [w for w in trainer(manifest)['command'] if 'process' in w]
  assert '--cluster=none' not in trainer(manifest)['command']
  assert manifest['metadata']['annotations'] == {
    'alpha.jobset.sigs.k8s.io/exclusive-topology': (
      'cloud.google.com/gke-nodepool'
    )
  }
  # On one host it would keep other runs from the rest of its node pool.
  assert 'annotations' not in rendered(capsys, '--tpu=v5e-8')[0]['metadata']


@pytest.mark.parametrize('tpu', resources.TPUS)
def test_chips_of_a_slice_fill_its_topology(capsys, tpu):
  (manifest,) = rendered(capsys, f'--tpu={tpu}')
  selector = pod_spec(manifest)['nodeSelector']
  chips = 1
  for side in selector['cloud.google.com/gke-tpu-topology'].split('x'):
    chips *= int(side)
  limits = trainer(manifest)['resources']['limits']
  assert job_spec(manifest)['completions'] * int(limits['google.com/tpu']) == (
    chips
  )


def test_a_pod_alone_is_in_no_job_and_gets_large_pages_on_a_cpu(capsys):
  (manifest,) = rendered(capsys, '--cpus=8', '--memory=32Gi')
  assert trainer(manifest)['command'][-1] == '--cluster=none'
  (setting,) = trainer(manifest)['env']
  assert setting['name'] == 'GLIBC_TUNABLES'
  assert trainer(manifest)['resources'] == {
    'limits': {'cpu': '8', 'memory': '32Gi'}
  }


def test_the_claim_is_where_relative_workdirs_are(capsys):
  (manifest,) = rendered(capsys)
  pod = pod_spec(manifest)
  assert pod['volumes'] == [
    {'name': 'claim', 'persistentVolumeClaim': {'claimName': 'runs'}}
  ]
  (mount,) = trainer(manifest)['volumeMounts']
  assert mount['name'] == 'claim'
  assert mount['mountPath'] == trainer(manifest)['workingDir']
  assert pod['automountServiceAccountToken'] is False


@pytest.mark.parametrize('kind', ['jobset', 'job'])
def test_what_becomes_of_a_pod_depends_on_its_code(capsys, kind):
  (*_, manifest) = rendered(capsys, f'--kind={kind}', '--nodes=2')
  spec = job_spec(manifest)
  rules = [
    (rule['action'], rule['onExitCodes']['values'])
    for rule in spec['podFailurePolicy']['rules'][:2]
  ]
  assert rules == [('FailJob', [76, 77]), ('Ignore', [75])]
  assert spec['podFailurePolicy']['rules'][2:] == [
    {
      'action': 'Ignore',
      'onPodConditions': [{'type': 'DisruptionTarget', 'status': 'True'}],
    }
  ]
  for rule in spec['podFailurePolicy']['rules'][:2]:
    assert rule['onExitCodes']['containerName'] == trainer(manifest)['name']
    assert rule['onExitCodes']['operator'] == 'In'
  assert pod_spec(manifest)['restartPolicy'] == 'Never'


def test_a_jobset_counts_crashes_of_all_its_pods_together(capsys):
  (manifest,) = rendered(capsys, '--nodes=4', '--max_restarts=7')
  assert job_spec(manifest)['backoffLimit'] == 0
  policy = manifest['spec']['failurePolicy']
  assert policy['maxRestarts'] == 7
  (rule,) = policy['rules']
  assert rule['action'] == 'FailJobSet'
  assert rule['onJobFailureReasons'] == ['PodFailurePolicy']


def test_a_job_has_a_service_and_counts_for_each_pod(capsys):
  service, manifest = rendered(
      capsys, '--kind=job', '--nodes=4', '--max_restarts=7', '--name=mine',
      '--queue=team', '--namespace=research',
  )  # fmt: skip
  spec, pod = job_spec(manifest), pod_spec(manifest)
  assert (spec['backoffLimitPerIndex'], spec['maxFailedIndexes']) == (7, 0)
  assert 'backoffLimit' not in spec
  assert service['spec']['clusterIP'] == 'None'
  assert service['spec']['selector'] == {'batch.kubernetes.io/job-name': 'mine'}
  assert pod['subdomain'] == service['metadata']['name'] == 'mine'
  place = '--coordinator_address=mine-0.mine:8476'
  assert place in trainer(manifest)['command']
  for made in (service, manifest):
    assert made['metadata']['namespace'] == 'research'
    assert made['metadata']['labels']['kueue.x-k8s.io/queue-name'] == 'team'


def test_a_pod_alone_needs_no_service(capsys):
  assert [m['kind'] for m in rendered(capsys, '--kind=job')] == ['Job']


def test_spot_nodes_and_labels_are_chosen(capsys):
  (manifest,) = rendered(
      capsys, '--spot', '--node_selector=nvidia.com/gpu.product=NVIDIA-L4',
      '--node_selector=zone=a',
  )  # fmt: skip
  assert pod_spec(manifest)['nodeSelector'] == {
    'cloud.google.com/gke-spot': 'true',
    'nvidia.com/gpu.product': 'NVIDIA-L4',
    'zone': 'a',
  }


@pytest.mark.parametrize('experiment', job.experiments())
def test_names_fit_and_differ(capsys, experiment):
  page = runpy.run_path(str(job.ROOT / f'experiments/{experiment}/sweep.py'))
  for sweep, runs in page['SWEEPS'].items():
    flags = ['--dry_run', *NEEDED, f'--sweep={sweep}', '--tpu=v5e-256']
    assert kubernetes.main([experiment, *flags]) == 0
    manifests = yaml.safe_load_all(capsys.readouterr().out)
    names = {manifest['metadata']['name'] for manifest in manifests}
    assert len(names) == len(runs)
    for name in names:
      assert re.fullmatch('[a-z]([a-z0-9-]*[a-z0-9])?', name)
      assert len(f'{name}-host-0-63-abcde') <= 63


def test_long_names_are_cut_and_still_differ(capsys):
  long = 'a' * 60
  names = [
    manifest['metadata']['name']
    for manifest in rendered(capsys, '--sweep=quick_seeds', f'--name={long}')
  ]
  assert len(set(names)) == 5
  assert all(name.startswith('a' * 30) for name in names)
  assert all(len(f'{name}-host-0-9999-abcde') <= 63 for name in names)


def test_words_of_the_trainer_come_through_as_they_are(capsys):
  words = ['--a=$(JOB_COMPLETION_INDEX)', '--b=$$', '--c="é😀: #\n']
  (manifest,) = rendered(capsys, *words)
  command = trainer(manifest)['command']
  assert [word.replace('$$', '$') for word in command[4:7]] == words
  assert command[4] == '--a=$$(JOB_COMPLETION_INDEX)'


@pytest.fixture
def kubectl(tmp_path, monkeypatch):
  """Records what it is asked and what it reads, and ends with 3."""
  program = tmp_path / 'kubectl'
  program.write_text(
    f'#!/bin/sh\necho "$*" >{tmp_path}/asked\ncat >{tmp_path}/read\nexit 3\n'
  )
  program.chmod(0o755)
  monkeypatch.setenv('PATH', f'{tmp_path}:{os.environ["PATH"]}')
  return tmp_path


@pytest.mark.parametrize('kind', ['jobset', 'job'])
def test_what_is_printed_is_what_kubectl_reads(capsys, kubectl, kind):
  flags = ['--sweep=quick_seeds', '--nodes=2', f'--kind={kind}']
  text = printed(capsys, *flags)
  assert not (kubectl / 'asked').exists()
  assert kubernetes.main(['nth_farthest', *NEEDED, *flags]) == 3
  assert (kubectl / 'asked').read_text() == 'create --filename=-\n'
  assert (kubectl / 'read').read_bytes() == text.encode()
  assert len(text.split('\n---\n')) == (5 if kind == 'jobset' else 10)


def test_without_kubectl_it_says_so(capsys, monkeypatch):
  monkeypatch.setattr(kubernetes.shutil, 'which', lambda name: None)
  with pytest.raises(SystemExit) as ended:
    kubernetes.main(['nth_farthest', *NEEDED])
  assert ended.value.code == 77
  assert 'no kubectl here' in capsys.readouterr().err


@pytest.mark.parametrize(
  ('flags', 'message'),
  [
    (['--tpu=v5e-3'], "no TPU 'v5e-3'; there are: v4-8, "),
    (['--tpu=v5e-4', '--nodes=2'], 'leave out --nodes'),
    (['--tpu=v5e-4', '--gpus=2'], 'leave out --nodes, --gpus'),
    (['--gpu_type=nvidia-l4'], 'nvidia-l4 needs --gpus'),
    (['--memory=lots'], "a size such as 64Gi; got 'lots'"),
    (['--name=My_Run'], "--name takes small letters.*got 'My_Run'"),
    (['--claim=a/b'], "--claim takes.*got 'a/b'"),
    (['--node_selector=zone'], "takes LABEL=VALUE; got 'zone'"),
    (['--nodes=0'], "at least 1; got '0'"),
    (['--kind=pod'], "invalid choice: 'pod'"),
    (['--workdir=/tmp/x'], '/tmp/x is lost with its pod.*below /claim'),
    (['--workdir=../x'], r'\.\./x is lost with its pod'),
  ],
)
def test_what_cannot_work_is_refused(capsys, flags, message):
  with pytest.raises(SystemExit) as ended:
    kubernetes.main(['nth_farthest', '--dry_run', *NEEDED, *flags])
  assert ended.value.code == 77
  said = capsys.readouterr()
  assert re.search(message, said.err)
  assert said.out == ''


@pytest.mark.parametrize('missing', NEEDED)
def test_image_and_claim_are_needed(capsys, missing):
  given = [flag for flag in NEEDED if flag != missing]
  with pytest.raises(SystemExit) as ended:
    kubernetes.main(['nth_farthest', '--dry_run', *given])
  assert ended.value.code == 77
  assert missing.partition('=')[0] in capsys.readouterr().err


def test_pods_may_act_as_a_service_account(capsys):
  (manifest,) = rendered(capsys, '--service_account=writer')
  assert pod_spec(manifest)['serviceAccountName'] == 'writer'
  (manifest,) = rendered(capsys)
  assert 'serviceAccountName' not in pod_spec(manifest)
