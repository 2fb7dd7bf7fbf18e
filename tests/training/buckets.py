"""Storage emulators on the loopback address, each with an empty bucket."""

from collections.abc import Iterator
import contextlib
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest
import tensorstore as ts

from tests.training import jobs


@pytest.fixture(scope='module', params=['gs', 's3'])
def scheme(request):
  """A scheme of URLs whose bucket `bucket` is emulated on this machine."""
  with (
    emulator(request.param) as environment,
    pytest.MonkeyPatch.context() as patch,
  ):
    for name, value in environment.items():
      patch.setenv(name, value)
    yield request.param


@pytest.fixture
def run_name(request):
  """A name of its own for the run of each test."""
  return re.sub(r'\W', '_', request.node.name)


@pytest.fixture
def place(scheme, run_name):
  """The URL of a test's run."""
  return f'{scheme}://bucket/{run_name}'


@pytest.fixture
def objects(scheme, run_name):
  """The objects of a test's run."""
  return store(scheme, run_name)


@contextlib.contextmanager
def emulator(scheme: str) -> Iterator[dict[str, str]]:
  """Yields the environment in which SCHEME://bucket is on this machine."""
  port = jobs.unused_port()
  address = f'http://127.0.0.1:{port}'
  if scheme == 'gs':
    program = ['tests.training.gcs_emulator', str(port)]
    environment = {'TENSORSTORE_GCS_HTTP_URL': address}
  else:
    program = ['moto.server', '-H', '127.0.0.1', '-p', str(port)]
    environment = {
      'AWS_ENDPOINT_URL': address,
      'AWS_ACCESS_KEY_ID': 'any',
      'AWS_SECRET_ACCESS_KEY': 'any',
    }
  with subprocess.Popen(
    [sys.executable, '-m', *program],
    cwd=jobs.ROOT,
    stdout=subprocess.DEVNULL,
    stderr=subprocess.DEVNULL,
  ) as server:
    try:
      _wait(server, address)
      if scheme == 's3':
        make = urllib.request.Request(f'{address}/bucket', method='PUT')
        urllib.request.urlopen(make).close()
      yield environment
    finally:
      server.kill()


def store(scheme: str, path: str) -> ts.KvStore:
  """Returns the objects of SCHEME://bucket/PATH, with its environment set."""
  spec = {'driver': 'gcs', 'bucket': 'bucket', 'path': f'{path}/'}
  if scheme == 's3':
    endpoint = os.environ['AWS_ENDPOINT_URL']
    spec |= {'driver': 's3', 'endpoint': endpoint, 'aws_region': 'us-east-1'}
  return ts.KvStore.open(spec).result()


def names(objects: ts.KvStore) -> set[str]:
  """Returns the names of all objects."""
  return {name.decode() for name in objects.list().result()}


def _wait(server: subprocess.Popen, address: str) -> None:
  for _ in range(600):
    assert server.poll() is None, 'the emulator ended'
    with contextlib.suppress(urllib.error.URLError, ConnectionError):
      urllib.request.urlopen(address).close()
      return
    time.sleep(0.1)
  raise TimeoutError('The emulator did not start within a minute.')
