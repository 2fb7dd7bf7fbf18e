"""Tests rmc_jax/datasets/gigaword/builder.py on a small copy of the layout."""

import gzip

import pytest

from rmc_jax.datasets import load
from rmc_jax.datasets.gigaword import builder
from rmc_jax.datasets.gigaword.builder import NEWSWIRES

MONTHS = ('200911', '200912', '201001', '201012')


def story(wire, month, number):
  return f"""\
<DOC id="{wire.upper()}_ENG_{month}01.{number:04}" type="story" >
<HEADLINE>
{wire} {month}
</HEADLINE>
<TEXT>
<P>
Story {number}
of &quot;it&quot;.
</P>
</TEXT>
</DOC>
"""


def text(wire, month, number):
  return f'{wire} {month}\nStory {number} of "it".\n'


@pytest.fixture
def corpus(tmp_path, monkeypatch):
  """Two discs, as delivered; two stories and an empty document a month."""
  for wire in NEWSWIRES:
    monkeypatch.setitem(builder.NEWSWIRES, wire, len(MONTHS))
  nothing = '<DOC id="X.1" type="advis" >\n<TEXT>\n</TEXT>\n</DOC>\n'
  for wire in NEWSWIRES:
    for month in MONTHS:
      disc = 'disc_1' if month < '2010' else 'disc_2'
      folder = tmp_path / 'mine' / disc / 'data' / f'{wire}_eng'
      folder.mkdir(parents=True, exist_ok=True)
      content = story(wire, month, 1) + nothing + story(wire, month, 2)
      (folder / f'{wire}_eng_{month}.gz').write_bytes(
        gzip.compress(content.encode())
      )
  return tmp_path / 'mine'


def prepare(corpus, tmp_path):
  return load.prepare('gigaword', data_dir=tmp_path / 'data', manual_dir=corpus)


def test_documents_are_ordered_by_newswire_and_month(corpus, tmp_path):
  assert prepare(corpus, tmp_path) == {'train': 28, 'valid': 14, 'test': 14}
  for split, months in {
      'train': MONTHS[:2], 'valid': MONTHS[2:3], 'test': MONTHS[3:]
  }.items():  # fmt: skip
    found = load.documents('gigaword', split, data_dir=tmp_path / 'data')
    assert list(found) == [
      text(wire, month, number)
      for wire in NEWSWIRES
      for month in months
      for number in (1, 2)
    ]


def test_reads_unpacked_files(corpus, tmp_path):
  for path in list(corpus.glob('**/*.gz')):
    path.with_suffix('').write_bytes(gzip.decompress(path.read_bytes()))
    path.unlink()
  assert prepare(corpus, tmp_path) == {'train': 28, 'valid': 14, 'test': 14}


def test_a_missing_newswire_is_an_error(corpus, tmp_path):
  for path in list(corpus.glob('**/wpb_eng_20*'))[:2]:
    path.unlink()
  with pytest.raises(
    load.DatasetError, match=r'2 files of wpb_eng; .*has 4\..*Needed.*LDC2011'
  ):
    prepare(corpus, tmp_path)


def test_a_part_of_the_corpus_is_refused(corpus, tmp_path, monkeypatch):
  monkeypatch.undo()
  # According to the README of the corpus: 1010 files.
  assert sum(builder.NEWSWIRES.values()) == 1010
  with pytest.raises(
    load.DatasetError, match='has 4 files of afp_eng; the corpus has 146'
  ):
    prepare(corpus, tmp_path)


def test_a_duplicate_month_is_an_error(corpus, tmp_path):
  path = corpus / 'disc_1/data/nyt_eng/nyt_eng_200912.gz'
  other = corpus / 'copy/nyt_eng/nyt_eng_200912'
  other.parent.mkdir(parents=True)
  other.write_bytes(gzip.decompress(path.read_bytes()))
  with pytest.raises(load.DatasetError, match='200912.* are the same month'):
    prepare(corpus, tmp_path)


def test_malformed_sgml_is_an_error_with_file_and_line(corpus, tmp_path):
  path = corpus / 'disc_1/data/cna_eng/cna_eng_200912.gz'
  path.write_bytes(gzip.compress(b'<html>\n'))
  with pytest.raises(
    load.DatasetError, match=r"cna_eng_200912\.gz: line 1: '<html>' outside"
  ):
    prepare(corpus, tmp_path)
  assert not any((tmp_path / 'data/gigaword').iterdir())


def test_a_truncated_file_is_an_error(corpus, tmp_path):
  path = corpus / 'disc_2/data/xin_eng/xin_eng_201001.gz'
  path.write_bytes(path.read_bytes()[:-12])
  with pytest.raises(
    load.DatasetError, match=r'xin_eng_201001\.gz cannot be read to its end'
  ):
    prepare(corpus, tmp_path)


def test_cannot_be_downloaded(tmp_path):
  with pytest.raises(
    load.DatasetError, match=r'cannot be downloaded \(LDC User Agreement'
  ):
    load.prepare('gigaword', data_dir=tmp_path)
