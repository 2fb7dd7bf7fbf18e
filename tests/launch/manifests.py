"""Dry runs of launch/kubernetes.py, and the published schemas."""

import functools
import gzip
import json
import pathlib

import jsonschema
import kubernetes_validate
import yaml

from launch import kubernetes

CRD = pathlib.Path(__file__).parent / 'schemas/jobset-v0.12.0.yaml.gz'
# The oldest release with every field, and the newest known one.
RELEASES = ('1.29', '1.37')
NEEDED = ('--image=registry.example/rmc:1', '--claim=runs')


def dry_run(capsys, *flags, experiment='nth_farthest'):
  assert kubernetes.main([experiment, '--dry_run', *NEEDED, *flags]) == 0
  return capsys.readouterr().out


def render(capsys, *flags):
  return json.loads(dry_run(capsys, *flags))['items']


def job_spec(manifest):
  (replicated,) = manifest['spec']['replicatedJobs']
  return replicated['template']['spec']


def pod_spec(manifest):
  return job_spec(manifest)['template']['spec']


def trainer(manifest):
  (container,) = pod_spec(manifest)['containers']
  return container


@functools.cache
def job_set_validator():
  """Returns a validator that, like `kubectl create`, refuses unknown fields."""
  crd = yaml.load(gzip.decompress(CRD.read_bytes()), yaml.CSafeLoader)
  (version,) = crd['spec']['versions']
  assert (version['name'], version['served']) == ('v1alpha2', True)
  schema = version['schema']['openAPIV3Schema']
  close(schema)
  return jsonschema.Draft202012Validator(schema)


def close(schema):
  """Refuses the fields that an OpenAPI schema does not name, in place."""
  if isinstance(schema, dict):
    if isinstance(schema.get('properties'), dict):
      schema.setdefault('additionalProperties', False)
    for part in list(schema.values()):
      close(part)


def validate(manifest):
  job_set_validator().validate(manifest)
  job = {
    'apiVersion': 'batch/v1',
    'kind': 'Job',
    'metadata': manifest['metadata'],
    'spec': job_spec(manifest),
  }
  for release in RELEASES:
    kubernetes_validate.validate(job, release, strict=True)
