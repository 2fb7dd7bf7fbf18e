"""Tests when a run on Kubernetes restarts, and which restarts it counts."""

import re

import pytest

from launch import job
from tests.launch.manifests import job_spec
from tests.launch.manifests import render

DISRUPTED = 'DisruptionTarget'


def failure(policy, pod):
  """Returns the message of a Job that fails because of a pod, or None.

  In the words of Kubernetes' pkg/controller/job/pod_failure_policy.go.
  """
  for index, rule in enumerate(policy['rules']):
    if 'onExitCodes' in rule:
      condition = rule['onExitCodes']
      assert condition['operator'] == 'In'
      if pod in condition['values']:
        assert rule['action'] == 'FailJob'
        return (
          f'Container {condition["containerName"]} for pod default/x-host-0-0 '
          f'failed with exit code {pod} matching FailJob rule at index {index}'
        )
    elif pod == rule['onPodConditions'][0]['type']:
      assert rule['action'] == 'FailJob'
      return (
        f'Pod default/x-host-0-0 has condition {pod} '
        f'matching FailJob rule at index {index}'
      )
  return None


def action(job_set, pods):
  """Returns what happens after pods failed with exit codes or a disruption."""
  spec, policy = job_spec(job_set), job_set['spec']['failurePolicy']
  assert spec['template']['spec']['restartPolicy'] == 'Never'
  messages = [failure(spec['podFailurePolicy'], pod) for pod in pods]
  reason, message = 'PodFailurePolicy', next(filter(None, messages), None)
  if message is None:
    if len(pods) <= spec['backoffLimit']:
      return 'the Job replaces the pods'
    reason = 'BackoffLimitExceeded'
    message = 'Job has reached the specified backoff limit'
  for rule in policy['rules']:
    reasons = rule.get('onJobFailureReasons', [reason])
    patterns = rule.get('onJobFailureMessagePatterns', [''])
    if reason in reasons and any(re.search(p, message) for p in patterns):
      return rule['action']
  return 'RestartJobSet'


@pytest.mark.parametrize(
  ('hosts', 'pods', 'expected'),
  [
    (2, [job.DIVERGED], 'FailJobSet'),
    (2, [134, job.CONFIGURATION_ERROR], 'FailJobSet'),
    (2, [job.PREEMPTED], 'RestartJobSetAndIgnoreMaxRestarts'),
    (2, [DISRUPTED], 'RestartJobSetAndIgnoreMaxRestarts'),
    # A host disappears: the others crash before it is known.
    (3, [134, 1], 'the Job replaces the pods'),
    (3, [134, 1, DISRUPTED], 'RestartJobSetAndIgnoreMaxRestarts'),
    # A crash: all pods have crashed.
    (3, [1, 134, 134], 'RestartJobSet'),
    (1, [1], 'RestartJobSet'),
  ],
)
def test_only_crashes_count_as_restarts(capsys, hosts, pods, expected):
  (manifest,) = render(capsys, f'--nodes={hosts}', '--max_restarts=7')
  assert action(manifest, pods) == expected
  assert manifest['spec']['failurePolicy']['maxRestarts'] == 7
