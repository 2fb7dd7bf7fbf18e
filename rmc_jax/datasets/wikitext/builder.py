"""Builders of WikiText-2 and WikiText-103, the versions with <unk>.

A document is a whole split: language models read its articles as one text, in
which headings mark the articles.
"""

import pathlib

from rmc_jax.datasets.text_builder import Sources
from rmc_jax.datasets.text_builder import SPLITS
from rmc_jax.datasets.text_builder import TextBuilder
from rmc_jax.datasets.text_files import find
from rmc_jax.datasets.text_files import Source

# Merity et al. 2016, table 1, with one <eos> per line. Both corpora have the
# same articles in these splits.
_VALID, _TEST = {'tokens': 217_646}, {'tokens': 245_569}
_INSTRUCTIONS = (
  'Needed in the folder: {archive}-v1.zip, or wiki.train.tokens, '
  'wiki.valid.tokens and wiki.test.tokens from it, or these as train.txt, '
  'valid.txt and test.txt; each may end with .gz. Not the raw version.'
)


class _WikiText(TextBuilder):
  """A WikiText; `ARCHIVE` is the folder inside the published archive."""

  ARCHIVE = ''
  CITATION = (
    'Stephen Merity, Caiming Xiong, James Bradbury, Richard Socher: Pointer '
    'Sentinel Mixture Models. arXiv:1609.07843, 2016.'
  )
  HOMEPAGE = 'https://wikitext.smerity.com'
  LICENSE = (
    'Creative Commons Attribution-ShareAlike 3.0 Unported (CC BY-SA 3.0); '
    'text of Wikipedia.'
  )

  def _sources(self, path: pathlib.Path) -> Sources:
    archive = path / f'{self.ARCHIVE}-v1.zip' if path.is_dir() else path
    if archive.is_file():
      member = f'{self.ARCHIVE}/wiki.%s.tokens'
      return {split: [Source(archive, member % split)] for split in SPLITS}
    return {
      split: [find(path, (f'wiki.{split}.tokens', f'{split}.txt'))]
      for split in SPLITS
    }


class WikiText2(_WikiText):
  """WikiText-2: two million tokens, 33,278 words with <eos> and <unk>."""

  name = 'wikitext2'
  ARCHIVE = 'wikitext-2'
  DESCRIPTION = 'Good and featured articles of Wikipedia: 2 million words.'
  URL = 'https://wikitext.smerity.com/wikitext-2-v1.zip'
  MANUAL_DOWNLOAD_INSTRUCTIONS = _INSTRUCTIONS.format(archive=ARCHIVE)
  PUBLISHED = {
      'train': {'tokens': 2_088_628}, 'valid': _VALID, 'test': _TEST
  }  # fmt: skip


class WikiText103(_WikiText):
  """WikiText-103: a hundred million tokens, 267,735 words."""

  name = 'wikitext103'
  ARCHIVE = 'wikitext-103'
  DESCRIPTION = 'Good and featured articles of Wikipedia: 103 million words.'
  URL = 'https://wikitext.smerity.com/wikitext-103-v1.zip'
  MANUAL_DOWNLOAD_INSTRUCTIONS = _INSTRUCTIONS.format(archive=ARCHIVE)
  PUBLISHED = {
      'train': {'tokens': 103_227_021}, 'valid': _VALID, 'test': _TEST
  }  # fmt: skip
