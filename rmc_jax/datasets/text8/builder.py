"""Builder of Text8: a hundred million letters and spaces on one line."""

import pathlib

from rmc_jax.datasets.text_builder import Sources
from rmc_jax.datasets.text_builder import SPLITS
from rmc_jax.datasets.text_builder import TextBuilder


class Text8(TextBuilder):
  """Text8, split after 90 and 95 million characters.

  As usual, words are split too, so one may begin in one split and end in the
  next. Sukhbaatar et al. 2015 split after 93.3 and 99 million.
  """

  name = 'text8'
  DESCRIPTION = (
    'The beginning of the English Wikipedia of March 2006, cleaned: letters '
    'a to z and single spaces, numbers spelled out.'
  )
  CITATION = 'Matt Mahoney: About the Test Data. 2006, revised 2011.'
  HOMEPAGE = 'http://mattmahoney.net/dc/textdata.html'
  LICENSE = (
    'Text of Wikipedia: GNU Free Documentation License, and Creative Commons '
    'Attribution-ShareAlike 3.0 Unported.'
  )
  STYLE = 'whitespace'
  FILES = ('text8',)
  ARCHIVE, MEMBER = 'text8.zip', 'text8'
  URL = f'http://mattmahoney.net/dc/{ARCHIVE}'
  MANUAL_DOWNLOAD_INSTRUCTIONS = (
    'Needed in the folder: text8.zip, or text8 from it, or text8.gz.'
  )
  UNIT = 'characters'
  PUBLISHED = {'train': 90_000_000, 'valid': 5_000_000, 'test': 5_000_000}

  def _sources(self, path: pathlib.Path) -> Sources:
    files = super()._sources(path)
    first, second, _ = (self.PUBLISHED[split] for split in SPLITS)
    starts = 0, first, first + second
    stops = first, first + second, None  # None detects files that are too long
    return {
      split: [files[split][0]._replace(start=start, stop=stop)]
      for split, start, stop in zip(SPLITS, starts, stops, strict=True)
    }
