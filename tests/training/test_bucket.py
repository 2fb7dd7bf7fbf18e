"""Tests rmc_jax/training/bucket.py; tests/faults/test_bucket.py kills runs."""

import pathlib
import re
import shutil
import time

import pytest

from rmc_jax.errors import ConfigurationError
from rmc_jax.errors import Diverged
from rmc_jax.training import bucket
from tests.training import buckets


def write(folder, *names):
  for name in names:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(name)


def read(objects, name):
  return objects.read(name).result().value.decode()


@pytest.mark.parametrize(
  ('workdir', 'expected'),
  [
    ('gs://bucket/run', True),
    ('s3://bucket/a/run', True),
    ('runs/x', False),
    ('/tmp/gs/run', False),
    (pathlib.Path('a:b/c'), False),
  ],
)
def test_recognizes_buckets(workdir, expected):
  assert bucket.is_bucket(workdir) is expected


@pytest.mark.parametrize(
  'workdir',
  [
    'az://bucket/run',
    'https://storage.googleapis.com/bucket/run',
    'gs://bucket',
    'gs:///run',
    pathlib.Path('gs://bucket/run'),
  ],
)
def test_unsupported_urls_raise(workdir):
  message = rf'gs://BUCKET/RUN.*Got: .*{re.escape(str(workdir))}'
  with pytest.raises(ConfigurationError, match=message):
    bucket.is_bucket(workdir)


def test_missing_bucket_raises(scheme):
  message = 'other_bucket/run cannot be used: .*Check the name of the bucket'
  with (
    pytest.raises(ConfigurationError, match=message),
    bucket.mirrored(f'{scheme}://other_bucket/run'),
  ):
    pass


def test_files_are_copied_back_and_forth(place, objects, capsys):
  with bucket.mirrored(place) as mirror:
    assert not list(mirror.folder.iterdir())
    write(mirror.folder, 'config.json', 'figures/curve.png', 'metrics.jsonl')
    write(mirror.folder, 'config.json.5f.tmp')
    (mirror.folder / 'empty').touch()
    assert mirror.folder.name == place.rpartition('/')[2]
  assert f'{mirror.folder} was copied to {place}.' in capsys.readouterr().out
  assert not mirror.folder.exists()
  names = {'config.json', 'empty', 'figures/curve.png', 'metrics.jsonl'}
  assert buckets.names(objects) == names
  with bucket.mirrored(place) as mirror:
    assert (mirror.folder / 'figures/curve.png').read_text().endswith('.png')
    assert (mirror.folder / 'empty').read_text() == ''
    (mirror.folder / 'metrics.jsonl').write_text('changed')
  assert buckets.names(objects) == names
  assert read(objects, 'metrics.jsonl') == 'changed'


def test_thread_copies_after_a_checkpoint(place, objects):
  with bucket.mirrored(place) as mirror:
    write(mirror.folder, 'checkpoints/7/data', 'checkpoints/7/manifest.json')
    mirror.wake()
    deadline = time.monotonic() + 60
    while 'checkpoints/7/manifest.json' not in buckets.names(objects):
      assert time.monotonic() < deadline


def test_incomplete_checkpoints_are_neither_copied_nor_read(place, objects):
  with bucket.mirrored(place) as mirror:
    write(mirror.folder, 'checkpoints/7/data', 'checkpoints/7/manifest.json')
    write(mirror.folder, 'checkpoints/8/data')
    write(mirror.folder, 'checkpoints/9.orbax-checkpoint-tmp/default/data')
  complete = {'checkpoints/7/data', 'checkpoints/7/manifest.json'}
  assert buckets.names(objects) == complete
  objects.write('checkpoints/9/data', b'half').result()
  # Changes nothing of a run in progress.
  with bucket.as_folder(place, checkpoints=True) as folder:
    assert (folder / 'checkpoints/7').exists()
    assert not (folder / 'checkpoints/9').exists()
    assert 'checkpoints/9/data' in buckets.names(objects)
  with bucket.mirrored(place) as mirror:
    assert not (mirror.folder / 'checkpoints/9').exists()
    assert buckets.names(objects) - {'lock'} == complete


class Recorder:
  """An object store that records writes, and fails when told to."""

  def __init__(self, fail_at=None):
    self.writes, self.fail_at, self.ended = [], fail_at, 0

  def write(self, name, content):
    self.writes.append((name, content is None))
    return self

  def result(self):
    self.ended += 1
    if self.ended == self.fail_at:
      raise OSError('no route to host')


def test_manifests_are_copied_last_and_removed_first(tmp_path):
  store = Recorder()
  mirror = bucket.Mirror(store, tmp_path, 'gs://b/run')
  step = ('checkpoints/7/manifest.json', 'checkpoints/7/z', 'checkpoints/7/a')
  write(tmp_path, *step, 'metrics.jsonl')
  mirror.copy()
  assert store.writes[-1] == ('checkpoints/7/manifest.json', False)
  assert {name for name, _ in store.writes} == {*step, 'metrics.jsonl'}
  for name in step:
    (tmp_path / name).unlink()
  write(tmp_path, 'checkpoints/8/manifest.json')
  store.writes.clear()
  mirror.copy()
  assert store.writes[:2] == [
    ('checkpoints/8/manifest.json', False),
    ('checkpoints/7/manifest.json', True),
  ]
  assert sorted(store.writes[2:]) == [
    ('checkpoints/7/a', True),
    ('checkpoints/7/z', True),
  ]


def test_manifest_of_a_checkpoint_that_is_being_removed_goes_first(
  tmp_path, monkeypatch
):
  store = Recorder()
  mirror = bucket.Mirror(store, tmp_path, 'gs://b/run')
  old = ('checkpoints/7/manifest.json', 'checkpoints/7/data')
  write(tmp_path, *old, 'checkpoints/8/data', 'checkpoints/8/manifest.json')
  mirror.copy()
  store.writes.clear()
  rglob = pathlib.Path.rglob

  def remove_meanwhile(folder, pattern):
    for path in sorted(rglob(folder, pattern), reverse=True):
      yield path
      if path == tmp_path / old[0]:  # It has been seen, the data have not.
        shutil.rmtree(path.parent)

  monkeypatch.setattr(pathlib.Path, 'rglob', remove_meanwhile)
  mirror.copy()
  assert store.writes == [(name, True) for name in old]


def test_checkpoint_removed_during_a_download_is_left_out(place, objects):
  with bucket.mirrored(place) as mirror:
    write(mirror.folder, 'checkpoints/7/data', 'checkpoints/7/manifest.json')
    write(mirror.folder, 'checkpoints/8/data', 'checkpoints/8/manifest.json')

  class Store:
    """Removes a file of a checkpoint between list and read."""

    list = objects.list

    def read(self, name):
      objects.write('checkpoints/7/data', None).result()
      return objects.read(name)

  folder = mirror.folder  # Its first use removed it.
  reader = bucket.Mirror(Store(), folder, place)
  reader.download(clean=False)
  assert not (folder / 'checkpoints/7').exists()
  assert (folder / 'checkpoints/8/data').read_text() == 'checkpoints/8/data'
  reader.finish()
  assert 'checkpoints/7/manifest.json' in buckets.names(objects)


def test_file_whose_copy_failed_is_copied_again(tmp_path):
  store = Recorder(fail_at=1)
  mirror = bucket.Mirror(store, tmp_path, 'gs://b/run')
  write(tmp_path, 'config.json')
  with pytest.raises(OSError, match='no route'):
    mirror.copy()
  mirror.copy()
  mirror.copy()
  assert store.writes == [('config.json', False)] * 2


def test_error_of_the_thread_is_raised_at_the_next_checkpoint(tmp_path):
  folder = tmp_path / 'parent/run'
  mirror = bucket.Mirror(Recorder(fail_at=1), folder, 'gs://b/run')
  write(folder, 'config.json')
  mirror.start()
  mirror.wake()
  while mirror._error is None:
    time.sleep(0.01)
  message = 'Copying to gs://b/run failed: no route to host'
  with pytest.raises(bucket.CopyFailed, match=message):
    mirror.wake()
  mirror.close()
  assert not folder.exists()


def test_only_files_of_checkpoints_are_removed(place, objects):
  step = ('checkpoints/7/manifest.json', 'checkpoints/7/data')
  with bucket.mirrored(place) as mirror:
    write(mirror.folder, 'config.json', *step)
  with bucket.mirrored(place) as mirror:
    shutil.rmtree(mirror.folder)  # As programs that clean /tmp do.
  assert buckets.names(objects) == {'config.json', *step}


def test_folder_of_a_failed_last_copy_is_kept(place, caplog):
  def fail():
    raise OSError('no route to host')

  def run(error=None):
    with bucket.mirrored(place) as mirror:
      mirror.copy = fail
      if error:
        raise error

  with pytest.raises(bucket.CopyFailed, match='no route.*They are in') as kept:
    run()
  folder = pathlib.Path(re.search(r'They are in (\S+)\.', str(kept.value))[1])
  assert folder.is_dir()
  shutil.rmtree(folder.parent)
  # An error that ended the run keeps its exit code.
  with pytest.raises(Diverged):
    run(Diverged('not finite'))
  folder = pathlib.Path(re.search(r'They are in (\S+)\.', caplog.text)[1])
  assert folder.is_dir()
  shutil.rmtree(folder.parent)


def test_objects_that_stand_for_folders_are_ignored(place, objects):
  objects.write('figures/', b'').result()
  objects.write('', b'').result()
  with bucket.mirrored(place) as mirror:
    write(mirror.folder, 'figures/curve.png')
  with bucket.mirrored(place) as mirror:
    assert (mirror.folder / 'figures/curve.png').exists()


def test_writes_have_ended_before_an_error_is_raised(tmp_path):
  store = Recorder(fail_at=2)
  mirror = bucket.Mirror(store, tmp_path, 'gs://b/run')
  write(tmp_path, 'a', 'b', 'c')
  with pytest.raises(OSError, match='no route'):
    mirror.copy()
  assert store.ended == 3


def test_analyses_copy_checkpoints_only_on_request(place, objects):
  step = ('checkpoints/7/manifest.json', 'checkpoints/7/data')
  with bucket.mirrored(place) as mirror:
    write(mirror.folder, 'config.json', *step)
  for checkpoints in (False, True):
    with bucket.as_folder(place, checkpoints=checkpoints) as folder:
      assert (folder / 'checkpoints').exists() is checkpoints
  assert buckets.names(objects) == {'config.json', *step}


def test_errors_name_the_bucket(place):
  with (
    pytest.raises(ConfigurationError, match=f'^{place}/config.json is'),
    bucket.mirrored(place) as mirror,
  ):
    raise ConfigurationError(f'{mirror.folder}/config.json is damaged.')


def test_folder_is_used_itself(tmp_path):
  with bucket.as_folder(str(tmp_path)) as folder:
    assert folder == tmp_path
  assert tmp_path.exists()


def test_reading_leaves_nothing_behind(place, objects, capsys):
  objects.write('config.json', b'{}').result()
  with bucket.as_folder(place) as read_only:
    pass
  assert capsys.readouterr().out == ''  # Programs print their results there.
  with pytest.raises(OSError, match='mine'), bucket.as_folder(place) as failed:
    raise OSError('mine')
  for folder in (read_only, failed):
    assert not folder.parent.exists()


def test_errors_about_a_copy_name_the_bucket(place):
  with (
    pytest.raises(ConfigurationError, match=f'^{place}/config.json is'),
    bucket.as_folder(place) as folder,
  ):
    raise ConfigurationError(f'{folder}/config.json is damaged.')


def test_changes_of_a_copy_are_copied_back(place, objects):
  objects.write('config.json', b'{}').result()
  with bucket.as_folder(place) as folder:
    assert (folder / 'config.json').read_text() == '{}'
    write(folder, 'figures/curve.png')
  assert buckets.names(objects) == {'config.json', 'figures/curve.png'}
