"""Tests rmc_jax/datasets/load.py."""

import fcntl
import signal
import subprocess
import sys
import threading

import pytest

from rmc_jax.datasets import load
from rmc_jax.datasets.load import DatasetError
from rmc_jax.datasets.ptb.builder import PennTreebank

TEXTS = {
  'train': ''.join(f' {i} <unk> apples \n' for i in range(90_000)),
  'valid': ' a pear \n \n',
  'test': ' the end \n',
}


@pytest.fixture
def corpus(tmp_path, monkeypatch):
  """A small Penn Treebank, without published counts to check."""
  monkeypatch.setattr(PennTreebank, 'PUBLISHED', {})
  folder = tmp_path / 'mine'
  folder.mkdir()
  for split, text in TEXTS.items():
    (folder / f'ptb.{split}.txt').write_text(text)
  return folder


def prepare(corpus, tmp_path, **kwargs):
  return load.prepare(
    'ptb', data_dir=tmp_path / 'data', manual_dir=corpus, **kwargs
  )


def test_prepares_and_reads_in_order(corpus, tmp_path):
  # 1,878,890 characters: two records.
  assert prepare(corpus, tmp_path) == {'train': 2, 'valid': 1, 'test': 1}
  for split, text in TEXTS.items():
    found = list(load.documents('ptb', split, data_dir=tmp_path / 'data'))
    assert ''.join(found) == text
    assert all(len(piece) <= 1_000_000 for piece in found)
    assert all(piece.endswith('\n') for piece in found)


def test_derived_files_may_be_stored_with_the_corpus(corpus, tmp_path):
  prepare(corpus, tmp_path)
  folder = load.folder('ptb', data_dir=tmp_path / 'data')
  assert folder == tmp_path / 'data/ptb/1.0.0'
  (folder / 'ids').mkdir()
  (folder / 'ids' / 'train.ids').write_bytes(b'1')
  found = list(load.documents('ptb', 'train', data_dir=tmp_path / 'data'))
  assert ''.join(found) == TEXTS['train']


def test_a_second_preparation_does_nothing(corpus, tmp_path, capsys):
  first = prepare(corpus, tmp_path)
  captured = capsys.readouterr()
  assert 'Preparing ptb in' in captured.err
  assert 'prepared already' not in captured.err
  assert captured.out == ''
  for path in corpus.iterdir():
    path.unlink()
  assert load.prepare('ptb', data_dir=tmp_path / 'data') == first
  err = capsys.readouterr().err
  assert err.startswith('ptb is prepared already, in ')
  assert str(tmp_path / 'data/ptb/1.0.0') in err


def test_the_users_folder_may_be_in_the_data_folder(corpus, tmp_path):
  place = tmp_path / 'data/downloads/manual/ptb'
  with pytest.raises(DatasetError, match=f'cannot be downloaded.*{place}'):
    load.prepare('ptb', data_dir=tmp_path / 'data')
  place.parent.mkdir(parents=True)
  corpus.rename(place)
  assert load.prepare('ptb', data_dir=tmp_path / 'data')['train'] == 2


def test_a_prepared_corpus_is_not_replaced_by_another_copy(
  corpus, tmp_path, capsys
):
  prepare(corpus, tmp_path)
  capsys.readouterr()
  prepare(corpus, tmp_path)
  second = capsys.readouterr().err.splitlines()[1]
  assert second.startswith(f'{corpus} was not read.')
  assert str(tmp_path / 'data/ptb/1.0.0') in second


def test_an_incomplete_corpus_is_refused(corpus, tmp_path):
  prepare(corpus, tmp_path)
  folder = tmp_path / 'data/ptb/1.0.0'
  description = folder / 'dataset_info.json'
  whole = description.read_text()

  def refused(match):
    for call in (
      lambda: prepare(corpus, tmp_path),
      lambda: load.documents('ptb', 'train', data_dir=tmp_path / 'data'),
      lambda: load.summary('ptb', data_dir=tmp_path / 'data'),
    ):
      with pytest.raises(DatasetError, match=match):
        call()

  (folder / 'metadata.json').rename(tmp_path / 'metadata.json')
  refused(r'1\.0\.0 is incomplete\. Delete')
  (tmp_path / 'metadata.json').rename(folder / 'metadata.json')
  description.write_text(whole[:40])
  refused('is damaged, in .*ptb.*Delete that folder')
  description.unlink()
  refused(r'1\.0\.0 is incomplete\. Delete')
  description.write_text(whole)
  assert load.documents('ptb', 'train', data_dir=tmp_path / 'data')


def test_a_full_disk_or_a_file_in_place_of_the_folder_is_an_error(
  corpus, tmp_path, monkeypatch
):
  (tmp_path / 'file').write_text('in the way')
  with pytest.raises(DatasetError, match='not be prepared in .*file.*name oth'):
    load.prepare('ptb', data_dir=tmp_path / 'file', manual_dir=corpus)

  def full(*_, **__):  # the error of array_record
    raise RuntimeError('write() failed: No space left on device')

  monkeypatch.setattr(load.tfds.core.SequentialWriter, 'close_all', full)
  with pytest.raises(DatasetError, match='No space left.*with room'):
    prepare(corpus, tmp_path)
  assert not list((tmp_path / 'data/ptb').iterdir())


def test_own_books_and_pg19_have_different_manual_folders(tmp_path):
  with pytest.raises(
    DatasetError, match=r'manual/gutenberg-folder has no copy'
  ):
    load.prepare('gutenberg/folder', data_dir=tmp_path)


def test_an_empty_or_missing_manual_folder_is_refused(corpus, tmp_path):
  (tmp_path / 'empty').mkdir()
  for name in ('absent', 'empty'):
    with pytest.raises(
      DatasetError, match=f'{name} is not a folder, or is emp'
    ):
      prepare(tmp_path / name, tmp_path)


def test_nothing_is_downloaded_if_the_user_forbids_it(tmp_path):
  with pytest.raises(DatasetError, match=r'text8 was not to be downl.*Needed'):
    load.prepare('text8', data_dir=tmp_path, download=False)


def test_unknown_names_are_errors_that_list_the_known(corpus, tmp_path):
  for call in (
    lambda: load.prepare('wikitext', data_dir=tmp_path),
    lambda: load.documents('wikitext', 'train', data_dir=tmp_path),
    lambda: load.summary('wikitext', data_dir=tmp_path),
  ):
    with pytest.raises(DatasetError, match="no corpus 'wikitext'; .*'ptb'"):
      call()
  prepare(corpus, tmp_path)
  with pytest.raises(
    DatasetError, match="no split 'validation'; it has train, valid"
  ):
    load.documents('ptb', 'validation', data_dir=tmp_path / 'data')


def test_an_unprepared_corpus_is_an_error_with_the_command(tmp_path):
  for call in (
    lambda: load.documents('ptb', 'train', data_dir=tmp_path),
    lambda: load.summary('ptb', data_dir=tmp_path),
    lambda: load.folder('ptb', data_dir=tmp_path),
  ):
    with pytest.raises(
      DatasetError,
      match=f'{sys.executable} -m rmc_jax.datasets.prepare ptb --data_dir='
      f'{tmp_path}',
    ):
      call()


def test_a_missing_split_is_an_error_and_leaves_no_files(corpus, tmp_path):
  (corpus / 'ptb.valid.txt').unlink()
  with pytest.raises(DatasetError, match=r'mine has no ptb\.valid\.txt or val'):
    prepare(corpus, tmp_path)
  assert not any((tmp_path / 'data/ptb').iterdir())


def test_a_damaged_record_is_an_error(corpus, tmp_path):
  prepare(corpus, tmp_path)
  (shard,) = (tmp_path / 'data/ptb/1.0.0').glob('*train*')
  content = bytearray(shard.read_bytes())
  # Near the end of the second record, after the header of its chunk.
  content[len(content) // 2] ^= 1
  shard.write_bytes(content)
  with pytest.raises(
    DatasetError, match=r'Record \d of 2 of train in .*1\.0\.0 cannot be read'
  ):
    list(load.documents('ptb', 'train', data_dir=tmp_path / 'data'))


def test_files_of_a_killed_process_are_removed(corpus, tmp_path):
  program = """
import os, signal, sys
from rmc_jax.datasets import load
from rmc_jax.datasets.ptb.builder import PennTreebank
PennTreebank._check_counts = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
load.prepare('ptb', data_dir=sys.argv[1], manual_dir=sys.argv[2])
"""
  folder = tmp_path / 'data'
  killed = subprocess.run(
    [sys.executable, '-c', program, str(folder), str(corpus)], check=False
  )
  assert killed.returncode == -signal.SIGKILL
  assert len(list(folder.glob('ptb/incomplete.*'))) == 1
  with pytest.raises(DatasetError, match='ptb is not prepared'):
    load.documents('ptb', 'train', data_dir=folder)
  assert prepare(corpus, tmp_path)['train'] == 2
  assert [path.name for path in folder.glob('ptb/*')] == ['1.0.0']


def test_a_second_process_waits_for_the_first(corpus, tmp_path, capsys):
  (tmp_path / 'data').mkdir()
  with (tmp_path / 'data/ptb.lock').open('a') as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    second = threading.Thread(target=prepare, args=(corpus, tmp_path))
    second.start()
    second.join(1.0)
    assert second.is_alive()
    assert not (tmp_path / 'data/ptb').exists()
  second.join()
  assert (tmp_path / 'data/ptb/1.0.0').is_dir()
  assert 'Another process prepares ptb' in capsys.readouterr().err


def test_summary_has_counts_folder_and_licence(corpus, tmp_path):
  prepare(corpus, tmp_path)
  text = load.summary('ptb', data_dir=tmp_path / 'data')
  lines = text.splitlines()
  assert lines[0] == f'ptb 1.0.0 in {tmp_path / "data/ptb/1.0.0"}'
  assert lines[1].split() == [
      'split', 'documents', 'tokens', 'characters', 'bytes', 'records',
  ]  # fmt: skip
  # Three words and a line end, ninety thousand times.
  assert lines[2].split() == [
      'train', '1', '360,000', '1,878,890', '1,878,890', '2',
  ]  # fmt: skip
  assert [line.split()[0] for line in lines[3:5]] == ['valid', 'test']
  assert 'licence: LDC User Agreement (LDC99T42' in text
  assert 'cite: Mitchell P. Marcus' in text
