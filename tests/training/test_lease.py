"""Tests rmc_jax/training/lease.py."""

import json
import threading
import time

import pytest

from rmc_jax.errors import ConfigurationError
from rmc_jax.training import lease
from tests.training import buckets


@pytest.fixture
def objects(scheme, run_name, monkeypatch):
  monkeypatch.setattr(lease, 'SECONDS', 1.0)
  return buckets.store(scheme, run_name)


def make_lease(objects):
  found = lease._wait_for_holder(objects, 'gs://b/run')
  return lease._Lease(objects, 'gs://b/run', found)


def test_second_holder_raises_until_the_first_releases(objects):
  for _ in range(2):
    with lease.acquire_lease(objects, 'gs://b/run'):
      message = r'training in gs://b/run: process \d+ on '
      with (
        pytest.raises(ConfigurationError, match=message),
        lease.acquire_lease(objects, 'gs://b/run'),
      ):
        pass
    assert buckets.names(objects) == set()


def test_lock_of_a_dead_process_is_taken_after_a_while(objects, capsys):
  content = {'host': 'gone', 'process': 7, 'id': 'x', 'renewals': 3}
  objects.write(lease.FILE_NAME, json.dumps(content).encode()).result()
  started = time.monotonic()
  with lease.acquire_lease(objects, 'gs://b/run'):
    assert time.monotonic() - started >= 1.0
  assert 'gs://b/run was locked by process 7 on gone; waiting up to 1 s' in (
    capsys.readouterr().out
  )


def test_lock_that_is_released_meanwhile_is_taken_at_once(objects, monkeypatch):
  monkeypatch.setattr(lease, 'SECONDS', 600.0)
  monkeypatch.setattr(lease, '_RENEWALS', 6000)
  objects.write(lease.FILE_NAME, b'{}').result()
  release = threading.Timer(
    0.3, lambda: objects.write(lease.FILE_NAME, None).result()
  )
  release.start()
  with lease.acquire_lease(objects, 'gs://b/run'):
    pass
  release.join()


def test_of_two_that_take_it_at_once_one_raises(objects):
  # Both find the lock of a dead process; the second one is slower.
  objects.write(lease.FILE_NAME, b'{}').result()
  found = lease._wait_for_holder(objects, 'gs://b/run')
  first, second = (lease._Lease(objects, 'gs://b/run', found) for _ in range(2))
  first.write(9.0)
  with pytest.raises(ConfigurationError, match='Another process'):
    second.write(9.0)
  second.release()  # Not its own, so it stays.
  assert buckets.names(objects) == {lease.FILE_NAME}
  first.release()
  assert buckets.names(objects) == set()


def test_write_whose_answer_was_lost_is_recognized(objects):
  own = make_lease(objects)
  before = own._generation
  own.write(9.0)
  own._generation = before
  own.write(9.0)
  own.write(9.0)
  own.release()
  assert buckets.names(objects) == set()


def test_error_of_the_release_is_logged(objects, caplog, monkeypatch):
  own = make_lease(objects)
  own.write(9.0)

  class Unreachable:
    def write(self, *arguments, **options):
      return self

    def result(self, timeout):
      raise OSError('no route to host')

  own._store = Unreachable()
  own.release()
  assert 'was not removed: no route to host' in caplog.text


class Ended(Exception):
  pass


@pytest.fixture
def ended(monkeypatch):
  """Raises Ended where the process would end."""

  def end(code):
    assert code == 1
    raise Ended

  monkeypatch.setattr(lease.os, '_exit', end)


def test_process_that_has_lost_the_lock_ends(objects, ended, capsys):
  own = make_lease(objects)
  own.write(9.0)
  objects.write(lease.FILE_NAME, b'{"id": "other"}').result()
  with pytest.raises(Ended):
    own.renew(threading.Event())
  assert 'Another process is training in gs://b/run' in capsys.readouterr().err


def test_process_that_cannot_renew_the_lock_ends(objects, ended, capsys):
  own = make_lease(objects)
  own.write(9.0)

  def fail(timeout):
    assert timeout <= 2 / 3
    raise OSError('no route to host')

  own.write = fail
  ended_after = 2 / 3  # of the second for which others wait
  started = time.monotonic()
  with pytest.raises(Ended):
    own.renew(threading.Event())
  assert ended_after - 0.1 <= time.monotonic() - started < 0.95
  assert 'could not be renewed: no route to host' in capsys.readouterr().err
