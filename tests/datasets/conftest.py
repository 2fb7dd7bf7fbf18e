"""A server of files and the folder of real corpora, for the builders' tests."""

import functools
import http.server
import os
import pathlib
import threading

import pytest


@pytest.fixture
def serve(monkeypatch):
  """Path with its query -> content, served until the test ends: URL, asked.

  `asked` fills with the paths that were asked for.
  """
  # Proxies of this machine are not for addresses of its own.
  monkeypatch.setenv('NO_PROXY', '127.0.0.1')
  servers = []

  def start(files):
    asked = []
    server = http.server.ThreadingHTTPServer(
      ('127.0.0.1', 0), functools.partial(_Handler, files, asked)
    )
    servers.append(server)
    threading.Thread(
      target=server.serve_forever, kwargs={'poll_interval': 0.01}, daemon=True
    ).start()
    return f'http://127.0.0.1:{server.server_port}', asked

  yield start
  for server in servers:
    server.shutdown()
    server.server_close()


class _Handler(http.server.BaseHTTPRequestHandler):
  def __init__(self, files, asked, *args):
    self.files, self.asked = files, asked
    super().__init__(*args)

  def do_GET(self):
    self.asked.append(self.path)
    content = self.files.get(self.path)
    self.send_response(404 if content is None else 200)
    self.send_header('Content-Length', str(len(content or b'')))
    self.end_headers()
    self.wfile.write(content or b'')

  def log_message(self, *args):
    """Nothing, where the base class writes on standard error."""


@pytest.fixture
def real_data():
  """Name -> the folder of a real corpus; skips where there is none."""

  def find(name):
    root = os.environ.get('RMC_DATA')
    if root is None or not (pathlib.Path(root) / name).is_dir():
      pytest.skip(f'RMC_DATA names no folder that has {name}')
    return pathlib.Path(root) / name

  return find
