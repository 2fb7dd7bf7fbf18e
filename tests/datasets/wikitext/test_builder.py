"""Tests rmc_jax/datasets/wikitext/builder.py."""

import gzip
import hashlib
import io
import zipfile

import pytest

from rmc_jax.datasets import load
from rmc_jax.datasets.wikitext import builder
from rmc_jax.datasets.wikitext.builder import WikiText2
from rmc_jax.datasets.wikitext.builder import WikiText103

TEXTS = {
  'train': ' \n = Robert <unk> = \n \n He had a guest @-@ starring role . \n',
  'valid': ' = Homarus = \n \n 3 @.@ 5 kilograms \n',
  'test': ' = Sun = \n',
}
# Words, and one token per line.
TOKENS = {'train': 4 + 8 + 4, 'valid': 3 + 4 + 3, 'test': 3 + 1}
CORPORA = {'wikitext2': WikiText2, 'wikitext103': WikiText103}


@pytest.fixture
def small(monkeypatch):
  """Both corpora with a few lines."""
  for corpus in CORPORA.values():
    monkeypatch.setattr(corpus, 'PUBLISHED', TOKENS)


def archive(folder):
  content = io.BytesIO()
  with zipfile.ZipFile(content, 'w', zipfile.ZIP_DEFLATED) as file:
    for split, text in TEXTS.items():
      file.writestr(f'{folder}/wiki.{split}.tokens', text)
  return content.getvalue()


def write(folder, pattern):
  folder.mkdir()
  for split, text in TEXTS.items():
    path = folder / pattern.format(split)
    content = text.encode()
    path.write_bytes(
      gzip.compress(content) if path.suffix == '.gz' else content
    )


def read(name, folder):
  return {
    split: ''.join(load.documents(name, split, data_dir=folder))
    for split in ('train', 'valid', 'test')
  }


@pytest.mark.parametrize('name', CORPORA)
@pytest.mark.parametrize(
  'pattern', ['wiki.{}.tokens', '{}.txt', 'wiki.{}.tokens.gz', '{}.txt.gz']
)
def test_reads_the_users_files(small, tmp_path, name, pattern):
  write(tmp_path / 'mine', pattern)
  splits = load.prepare(name, data_dir=tmp_path, manual_dir=tmp_path / 'mine')
  assert splits == {'train': 1, 'valid': 1, 'test': 1}
  assert read(name, tmp_path) == TEXTS


@pytest.mark.parametrize(
  'name, folder',
  [('wikitext2', 'wikitext-2'), ('wikitext103', 'wikitext-103')],
)
def test_reads_the_published_archive(small, tmp_path, name, folder):
  (tmp_path / 'mine').mkdir()
  (tmp_path / f'mine/{folder}-v1.zip').write_bytes(archive(folder))
  load.prepare(name, data_dir=tmp_path, manual_dir=tmp_path / 'mine')
  assert read(name, tmp_path) == TEXTS


def test_downloads_the_archive(small, tmp_path, monkeypatch, serve):
  path = '/wikitext-103-v1.zip'
  assert WikiText103.URL.endswith(path)
  url, requested = serve({path: archive('wikitext-103')})
  monkeypatch.setattr(WikiText103, 'URL', url + path)
  load.prepare('wikitext103', data_dir=tmp_path)
  assert read('wikitext103', tmp_path) == TEXTS
  assert requested == [path]


def test_a_failed_download_is_an_error_with_its_remedy(
  tmp_path, monkeypatch, serve
):
  url, _ = serve({})
  monkeypatch.setattr(WikiText2, 'URL', f'{url}/wikitext-2-v1.zip')
  with pytest.raises(
    load.DatasetError,
    match=r'wikitext2 could not be downloaded: .*404.*--manual_dir.*Needed',
  ):
    load.prepare('wikitext2', data_dir=tmp_path)


def test_a_truncated_archive_is_an_error(small, tmp_path):
  (tmp_path / 'mine').mkdir()
  file = tmp_path / 'mine/wikitext-2-v1.zip'
  file.write_bytes(archive('wikitext-2')[:-30])
  with pytest.raises(load.DatasetError, match=r'wikitext-2-v1\.zip.*truncated'):
    load.prepare('wikitext2', data_dir=tmp_path, manual_dir=tmp_path / 'mine')


@pytest.mark.parametrize(
  'name, tokens', [('wikitext2', '2,088,628'), ('wikitext103', '103,227,021')]
)
def test_a_part_of_the_corpus_is_refused(tmp_path, name, tokens):
  write(tmp_path / 'mine', '{}.txt')
  with pytest.raises(
    load.DatasetError,
    match=f'train split of {name} has 16 tokens; the corpus has {tokens}',
  ):
    load.prepare(name, data_dir=tmp_path, manual_dir=tmp_path / 'mine')


def test_the_raw_version_is_refused(tmp_path):
  write(tmp_path / 'mine', 'wiki.{}.raw')
  with pytest.raises(load.DatasetError, match=r'no wiki\.train\.tokens or'):
    load.prepare('wikitext2', data_dir=tmp_path, manual_dir=tmp_path / 'mine')


def test_both_corpora_share_valid_and_test():
  for split in ('valid', 'test'):
    assert WikiText2.PUBLISHED[split] == WikiText103.PUBLISHED[split]
  assert 'CC BY-SA 3.0' in builder.WikiText2.LICENSE


def test_reads_the_real_wikitext2(tmp_path, real_data):
  load.prepare(
    'wikitext2', data_dir=tmp_path, manual_dir=real_data('wikitext-2')
  )
  digests = {
    split: hashlib.sha256(text.encode()).hexdigest()
    for split, text in read('wikitext2', tmp_path).items()
  }
  # From the note beside the files.
  assert digests == {
    'train': (
      '9e9fa1ad55b1c2c95b08e37dd8e653f638fac2c6de904b79e813611eefbc985f'
    ),
    'valid': (
      'f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8'
    ),
    'test': (
      'd790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0'
    ),
  }
