"""Tests rmc_jax/datasets/ptb/builder.py."""

import gzip

import pytest

from rmc_jax.datasets import load
from rmc_jax.datasets.ptb.builder import PennTreebank

TEXTS = {
  'train': ' mr. <unk> is chairman of <unk> n.v. \n it has N workers \n',
  'valid': ' consumers may want to move \n',
  'test': " no it was n't black monday \n",
}
TOKENS = {'train': 8 + 4 + 1, 'valid': 6, 'test': 7}


@pytest.mark.parametrize(
  'pattern', ['ptb.{}.txt', '{}.txt', 'ptb.{}.txt.gz', '{}.txt.gz']
)
def test_reads_the_users_files(tmp_path, monkeypatch, pattern):
  monkeypatch.setattr(PennTreebank, 'PUBLISHED', TOKENS)
  for split, text in TEXTS.items():
    path, content = tmp_path / pattern.format(split), text.encode()
    path.write_bytes(
      gzip.compress(content) if path.suffix == '.gz' else content
    )
  load.prepare('ptb', data_dir=tmp_path / 'data', manual_dir=tmp_path)
  for split, text in TEXTS.items():
    found = load.documents('ptb', split, data_dir=tmp_path / 'data')
    assert list(found) == [text]


@pytest.mark.parametrize(
  'split, tokens',
  [('train', '929,589'), ('valid', '73,760'), ('test', '82,430')],
)
def test_a_part_of_the_corpus_is_refused(tmp_path, monkeypatch, split, tokens):
  monkeypatch.setattr(
    PennTreebank, 'PUBLISHED', {split: PennTreebank.PUBLISHED[split]}
  )
  for name, text in TEXTS.items():
    (tmp_path / f'ptb.{name}.txt').write_text(text)
  with pytest.raises(
    load.DatasetError, match=f'{split} split of ptb .* has {tokens}.*Needed'
  ):
    load.prepare('ptb', data_dir=tmp_path / 'data', manual_dir=tmp_path)


def test_cannot_be_downloaded(tmp_path):
  with pytest.raises(
    load.DatasetError, match=r'cannot be downloaded \(LDC User Agreement'
  ):
    load.prepare('ptb', data_dir=tmp_path)
