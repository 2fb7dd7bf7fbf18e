"""Builder of English Gigaword, fifth edition, from the user's own copy."""

from collections.abc import Iterator
import pathlib

from rmc_jax.datasets.gigaword import sgml
from rmc_jax.datasets.text_builder import Sources
from rmc_jax.datasets.text_builder import SPLITS
from rmc_jax.datasets.text_builder import TextBuilder
from rmc_jax.datasets.text_files import check_distinct
from rmc_jax.datasets.text_files import DatasetError
from rmc_jax.datasets.text_files import open_text
from rmc_jax.datasets.text_files import Source

# Newswire -> the number of its monthly files, from the README of the corpus.
NEWSWIRES = {
  'afp': 146,
  'apw': 193,
  'cna': 144,
  'ltw': 127,
  'nyt': 197,
  'wpb': 12,
  'xin': 191,
}


class GigaWord(TextBuilder):
  """English Gigaword; a document is a story or another text of a newswire.

  Documents of all types are read, as a line for the headline and one for each
  paragraph; those without text are skipped. The newswires follow one another,
  each month by month. Santoro et al. 2018 do not give their split: here test
  has the last month of every newswire, and valid the one before.
  """

  name = 'gigaword'
  DESCRIPTION = 'Newswire text of 1994 to 2010 from seven agencies.'
  CITATION = (
    'Robert Parker, David Graff, Junbo Kong, Ke Chen, Kazuaki Maeda: English '
    'Gigaword Fifth Edition. LDC2011T07, Linguistic Data Consortium, 2011.'
  )
  HOMEPAGE = 'https://catalog.ldc.upenn.edu/LDC2011T07'
  LICENSE = (
    'LDC User Agreement (LDC2011T07): for licensees, not for redistribution.'
  )
  MANUAL_DOWNLOAD_INSTRUCTIONS = (
    'Needed in the folder, at any depth: the seven folders afp_eng, apw_eng, '
    'cna_eng, ltw_eng, nyt_eng, wpb_eng and xin_eng of LDC2011T07 with their '
    'monthly files, such as data/afp_eng/afp_eng_199405.gz.'
  )
  STYLE = 'word_lines'
  RECORDS_PER_SHARD = 100_000  # of about 2.5 kB each

  def _sources(self, path: pathlib.Path) -> Sources:
    sources: dict[str, list[Source]] = {split: [] for split in SPLITS}
    for wire, published in NEWSWIRES.items():
      found = path.glob(f'**/{wire}_eng/{wire}_eng_[0-9]*')
      months = sorted(map(Source, found), key=lambda month: month.title)
      check_distinct(months, 'month')
      if len(months) != published:
        raise DatasetError(
          f'{path} has {len(months)} files of {wire}_eng; the corpus has '
          f'{published}. {self.MANUAL_DOWNLOAD_INSTRUCTIONS}'
        )
      sources['train'] += months[:-2]
      sources['valid'].append(months[-2])
      sources['test'].append(months[-1])
    return sources

  def _documents(self, source: Source) -> Iterator[tuple[str, Iterator[str]]]:
    with open_text(source) as lines:
      try:
        for name, text in sgml.documents(lines):
          yield name, iter(text)
      except sgml.MalformedError as error:
        raise DatasetError(
          f"{source}: {error}. It is damaged, or not in the LDC's format. "
          f'{self.MANUAL_DOWNLOAD_INSTRUCTIONS}'
        ) from error
