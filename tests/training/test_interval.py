"""Tests rmc_jax/training/interval.py; test_loop.py tests it in the loop."""

import json

import jax.numpy as jnp
import numpy as np
import pytest

from rmc_jax.training import interval as interval_lib
from rmc_jax.training.interval import Interval


def call(loss, count, nonfinite=0):
  return {
    'loss': (jnp.float32(loss), jnp.int32(count)),
    'nonfinite': (jnp.int32(nonfinite), jnp.int32(1)),
  }


def test_means_are_over_all_calls_and_weighted_by_their_counts():
  interval = Interval()
  interval.append(2, call(6.0, 3))
  interval.append(4, call(1.0, 1, nonfinite=1))
  assert list(interval.read(wait=True)) == [
    (2, {'loss': 2.0, 'nonfinite': 0.0}),
    (4, {'loss': 1.0, 'nonfinite': 1.0}),
  ]
  assert interval.take() == {'loss': 7 / 4, 'nonfinite': 0.5}
  interval.append(6, call(5.0, 1))
  list(interval.read(wait=True))
  assert interval.take() == {'loss': 5.0, 'nonfinite': 0.0}


def test_calls_in_flight_are_left_unless_waited_for(monkeypatch):
  monkeypatch.setattr(interval_lib, '_calls_ahead', lambda: 1)
  interval = Interval()
  interval.append(1, call(1.0, 1))
  interval.append(2, call(2.0, 1))
  assert [step for step, _ in interval.read(wait=False)] == [1]
  assert [step for step, _ in interval.read(wait=True)] == [2]


@pytest.mark.parametrize('members', [(), (3,)])
def test_sums_survive_json_bit_for_bit(members):
  interval = Interval()
  total = np.broadcast_to(np.float32(1) / np.float32(3), members)
  interval.append(1, {'loss': (jnp.asarray(total), jnp.ones(members))})
  list(interval.read(wait=True))
  restored = Interval(json.loads(json.dumps(interval.to_json())))
  for each in (interval, restored):
    each.append(2, {'loss': (jnp.asarray(total) / 7, jnp.ones(members))})
    list(each.read(wait=True))
  assert restored.take() == interval.take()


def test_interval_restarts_when_the_metrics_have_other_names():
  interval = Interval({'loss': [8.0, 2.0]})
  interval.append(1, call(3.0, 1))
  list(interval.read(wait=True))
  assert interval.take() == {'loss': 3.0, 'nonfinite': 0.0}
