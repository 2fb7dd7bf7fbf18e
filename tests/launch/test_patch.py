"""Tests patches of the Job, applied by the real kubectl without a cluster."""

import json
import re
import shutil
import subprocess

import pytest

from launch import job
from tests.launch.manifests import dry_run
from tests.launch.manifests import job_spec
from tests.launch.manifests import pod_spec
from tests.launch.manifests import render
from tests.launch.manifests import trainer
from tests.launch.manifests import validate

needs_kubectl = pytest.mark.skipif(
  not shutil.which('kubectl'), reason='kubectl is not installed'
)


@pytest.fixture
def no_cluster(monkeypatch, tmp_path):
  """A folder, without access to a cluster."""
  monkeypatch.setenv('HOME', str(tmp_path))
  monkeypatch.delenv('KUBECONFIG', raising=False)
  monkeypatch.delenv('KUBERNETES_SERVICE_HOST', raising=False)
  monkeypatch.chdir(tmp_path)
  return tmp_path


@pytest.fixture
def example(no_cluster):
  """Writes a file that docs/launching.md shows; returns the flag."""
  page = (job.ROOT / 'docs/launching.md').read_text()

  def write(name):
    pattern = rf'^    # {re.escape(name)}\n((?:    .*\n)+)'
    (text,) = re.findall(pattern, page, re.MULTILINE)
    (no_cluster / name).write_text(text)
    return f'--patch={name}'

  return write


@needs_kubectl
def test_patch_of_the_page_mounts_a_bucket(capsys, example):
  (manifest,) = render(capsys, '--gpus=8', example('gcsfuse.yaml'))
  validate(manifest)
  template = job_spec(manifest)['template']
  assert template['metadata']['annotations'] == {'gke-gcsfuse/volumes': 'true'}
  volumes = {volume['name'] for volume in template['spec']['volumes']}
  assert volumes == {'claim', 'shm', 'data'}
  mounts = {
    m['mountPath']: m['name'] for m in trainer(manifest)['volumeMounts']
  }
  assert mounts == {
    '/claim': 'claim',
    '/dev/shm': 'shm',
    '/claim/data': 'data',
  }


@needs_kubectl
def test_patch_of_the_page_adds_a_sidecar(capsys, example):
  (manifest,) = render(capsys, '--gpus=8', '--nodes=2', example('tcpxo.yaml'))
  validate(manifest)
  (sidecar,) = pod_spec(manifest)['initContainers']
  # A pod whose other containers have exited ends only if it is of this kind.
  assert sidecar['restartPolicy'] == 'Always'
  shared = {mount['name'] for mount in sidecar['volumeMounts']}
  assert shared & {mount['name'] for mount in trainer(manifest)['volumeMounts']}
  assert {'name': 'shm', 'emptyDir': {'medium': 'Memory'}} in pod_spec(
    manifest
  )['volumes']


def test_variable_of_the_page_makes_gpus_deterministic(capsys):
  flag = '--env=XLA_FLAGS=--xla_gpu_deterministic_ops=true'
  assert f'`{flag}`' in (job.ROOT / 'docs/launching.md').read_text()
  (manifest,) = render(capsys, '--gpus=8', flag)
  value = '--xla_gpu_deterministic_ops=true'
  assert trainer(manifest)['env'] == [{'name': 'XLA_FLAGS', 'value': value}]


@needs_kubectl
@pytest.mark.parametrize(
  'text',
  [
    '[{"op": "add", "path": "/spec/ttlSecondsAfterFinished", "value": 9}]',
    '# A list.\n---\n- op: add\n  path: /spec/ttlSecondsAfterFinished\n'
    '  value: 9\n',
    '# An object.\n---\nspec:\n  ttlSecondsAfterFinished: 9\n',
  ],
)
def test_patches_of_both_types_are_applied_in_order(capsys, no_cluster, text):
  (no_cluster / 'first.yaml').write_text(text)
  (no_cluster / 'second.yaml').write_text('metadata: {labels: {a: b}}\n')
  flags = ['--patch=first.yaml', '--patch=second.yaml']
  (manifest,) = render(capsys, *flags)
  assert job_spec(manifest)['ttlSecondsAfterFinished'] == 9
  validate(manifest)
  (replicated,) = manifest['spec']['replicatedJobs']
  assert replicated['template']['metadata'] == {'labels': {'a': 'b'}}


@needs_kubectl
def test_patch_that_does_not_fit_is_refused(capsys, no_cluster):
  (no_cluster / 'wrong.json').write_text(
    '[{"op": "remove", "path": "/spec/x"}]'
  )
  with pytest.raises(SystemExit) as exit_info:
    dry_run(capsys, '--patch=wrong.json')
  assert exit_info.value.code == 77
  captured = capsys.readouterr()
  assert re.search('--patch=wrong.json .*error: .*/spec/x', captured.err)
  assert captured.out == ''


@needs_kubectl
def test_kubectl_reads_the_manifests_of_a_sweep(capsys, no_cluster):
  text = dry_run(capsys, '--sweep=quick_seeds')
  completed = subprocess.run(
    ['kubectl', 'label', '--local', '-f', '-', 'a=b', '-o', 'name'],
    input=text,
    capture_output=True,
    text=True,
    check=True,
  )
  assert completed.stdout.split() == [
    f'jobset.jobset.x-k8s.io/{item["metadata"]["name"]}'
    for item in json.loads(text)['items']
  ]
