"""Builders of WikiText-2 and WikiText-103, the versions with <unk>.

A document is a whole split: language models read its articles as one text, in
which headings mark the articles.
"""

from rmc_jax.datasets.text_builder import TextBuilder

_INSTRUCTIONS = (
  'Needed in the folder: {archive}, or wiki.train.tokens, '
  'wiki.valid.tokens and wiki.test.tokens from it, or these as train.txt, '
  'valid.txt and test.txt; each may end with .gz. Not the raw version.'
)


class _WikiText(TextBuilder):
  """What both corpora share: also the articles of valid and test.

  The published counts are in Merity et al. 2016, table 1, one <eos> per line.
  """

  CITATION = (
    'Stephen Merity, Caiming Xiong, James Bradbury, Richard Socher: Pointer '
    'Sentinel Mixture Models. arXiv:1609.07843, 2016.'
  )
  HOMEPAGE = 'https://wikitext.smerity.com'
  LICENSE = (
    'Creative Commons Attribution-ShareAlike 3.0 Unported (CC BY-SA 3.0); '
    'text of Wikipedia.'
  )
  STYLE = 'lines'
  FILES = ('wiki.{}.tokens', '{}.txt')


class WikiText2(_WikiText):
  """WikiText-2: two million tokens, 33,278 words with <eos> and <unk>."""

  name = 'wikitext2'
  ARCHIVE, MEMBER = 'wikitext-2-v1.zip', 'wikitext-2/wiki.{}.tokens'
  DESCRIPTION = 'Good and featured articles of Wikipedia: 2 million words.'
  URL = f'https://wikitext.smerity.com/{ARCHIVE}'
  MANUAL_DOWNLOAD_INSTRUCTIONS = _INSTRUCTIONS.format(archive=ARCHIVE)
  PUBLISHED = {'train': 2_088_628, 'valid': 217_646, 'test': 245_569}


class WikiText103(_WikiText):
  """WikiText-103: a hundred million tokens, 267,735 words."""

  name = 'wikitext103'
  ARCHIVE, MEMBER = 'wikitext-103-v1.zip', 'wikitext-103/wiki.{}.tokens'
  DESCRIPTION = 'Good and featured articles of Wikipedia: 103 million words.'
  URL = f'https://wikitext.smerity.com/{ARCHIVE}'
  MANUAL_DOWNLOAD_INSTRUCTIONS = _INSTRUCTIONS.format(archive=ARCHIVE)
  PUBLISHED = {'train': 103_227_021, 'valid': 217_646, 'test': 245_569}
