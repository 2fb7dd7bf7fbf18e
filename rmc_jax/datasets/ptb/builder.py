"""Builder of the Penn Treebank as prepared for language models, 10,000 words.

Its licence forbids redistribution, so it needs the user's own copy.
"""

from rmc_jax.datasets.text_builder import TextBuilder


class PennTreebank(TextBuilder):
  """Penn Treebank: sections 0-20, 21-22 and 23-24 as train, valid and test."""

  name = 'ptb'
  DESCRIPTION = (
    'Articles of the Wall Street Journal in lower case, without punctuation, '
    'numbers as N, 10,000 words and <unk>.'
  )
  CITATION = (
    'Mitchell P. Marcus, Beatrice Santorini, Mary Ann Marcinkiewicz: '
    'Building a Large Annotated Corpus of English: The Penn Treebank. '
    'Computational Linguistics 19(2), 1993. Prepared as by Tomas Mikolov et '
    'al.: Recurrent Neural Network Based Language Model. Interspeech 2010.'
  )
  HOMEPAGE = 'https://catalog.ldc.upenn.edu/LDC99T42'
  LICENSE = (
    'LDC User Agreement (LDC99T42, Treebank-3): for licensees, not for '
    'redistribution.'
  )
  MANUAL_DOWNLOAD_INSTRUCTIONS = (
    'Needed in the folder: ptb.train.txt, ptb.valid.txt and ptb.test.txt (or '
    'train.txt, valid.txt and test.txt; each may end with .gz), as in '
    "simple-examples/data of the archive of Mikolov's toolkit."
  )
  PUBLISHED = {'train': 929_589, 'valid': 73_760, 'test': 82_430}
  STYLE = 'lines'
  FILES = ('ptb.{}.txt', '{}.txt')
