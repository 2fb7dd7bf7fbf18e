"""Emulates Google Cloud Storage: python -m tests.training.gcs_emulator PORT.

Adds to gcp-storage-emulator what it lacks: requests that depend on the
generation of an object (`ifGenerationMatch`), the header that reports it, the
range of a listing (`startOffset`, `endOffset`), and empty objects.
"""

import functools
from http import HTTPStatus
import sys
import threading

from gcp_storage_emulator.exceptions import NotFound
from gcp_storage_emulator.handlers import objects

_lock = threading.Lock()


def _with_generations(handler):
  @functools.wraps(handler)
  def handle(request, response, storage):
    data = request.data
    with _lock:
      respond(data, request, response, storage)

  def respond(data, request, response, storage):
    name = request.params.get('object_id') or request.query['name'][0]
    try:
      found = storage.get_file_obj(request.params['bucket_name'], name)
      generation = found['generation']
    except NotFound:
      generation = '0'
    if request.query.get('ifGenerationMatch', [generation]) != [generation]:
      response.status = HTTPStatus.PRECONDITION_FAILED
      return
    if request.method == 'POST' and data is None:
      request._data = b''
    if request.method == 'GET':
      response['X-Goog-Generation'] = generation
    handler(request, response, storage)

  return handle


def _list(request, response, storage):
  first, end = (
    request.query.get(name, [''])[0] for name in ('startOffset', 'endOffset')
  )
  found, _ = storage.get_file_list(request.params['bucket_name'])
  items = [
    each
    for each in found
    if first <= each['name'] and (not end or each['name'] < end)
  ]
  response.json({'kind': 'storage#objects', 'items': items})


objects.ls = _list
for _name in ('get', 'insert', 'delete'):
  setattr(objects, _name, _with_generations(getattr(objects, _name)))

# Its table of handlers is made from them when it is imported.
from gcp_storage_emulator import server  # noqa: E402

# By default one connection is served, five wait, and more are dropped.
server.server.HTTPServer = server.server.ThreadingHTTPServer
server.server.HTTPServer.request_queue_size = 128

if __name__ == '__main__':
  server.create_server(
    '127.0.0.1', int(sys.argv[1]), in_memory=True, default_bucket='bucket'
  ).run()
