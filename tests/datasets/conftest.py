"""Fixtures of the builders' tests: an HTTP server and real corpora."""

import functools
import http.server
import os
import pathlib
import threading

import pytest


@pytest.fixture
def serve(monkeypatch):
  """Serves {path with query: content}; returns (URL, requested paths)."""
  # No proxy for local addresses.
  monkeypatch.setenv('NO_PROXY', '127.0.0.1')
  servers = []

  def start(files):
    requested = []
    server = http.server.ThreadingHTTPServer(
      ('127.0.0.1', 0), functools.partial(_Handler, files, requested)
    )
    servers.append(server)
    threading.Thread(
      target=server.serve_forever, kwargs={'poll_interval': 0.01}, daemon=True
    ).start()
    return f'http://127.0.0.1:{server.server_port}', requested

  yield start
  for server in servers:
    server.shutdown()
    server.server_close()


class _Handler(http.server.BaseHTTPRequestHandler):
  def __init__(self, files, requested, *args):
    self.files, self.requested = files, requested
    super().__init__(*args)

  def do_GET(self):
    self.requested.append(self.path)
    content = self.files.get(self.path)
    self.send_response(404 if content is None else 200)
    self.send_header('Content-Length', str(len(content or b'')))
    self.end_headers()
    self.wfile.write(content or b'')

  def log_message(self, *args):
    """Prints nothing on standard error."""


@pytest.fixture
def real_data():
  """Finds the folder of a real corpus by name; skips if there is none."""

  def find(name):
    root = os.environ.get('RMC_DATA')
    if root is None or not (pathlib.Path(root) / name).is_dir():
      pytest.skip(f'the folder RMC_DATA has no {name}')
    return pathlib.Path(root) / name

  return find
