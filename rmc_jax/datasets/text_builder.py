"""The base class of the builders of text corpora.

TFDS itself collects the examples of a split in memory to sort them, and needs
TensorFlow beyond one gigabyte. Text that is read in order needs no sorting, so
here records are written to their shards one by one.
"""

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import itertools
import pathlib
from typing import Any
from typing import cast
from typing import ClassVar

import tensorflow_datasets as tfds

from rmc_jax.datasets.progress import Progress
from rmc_jax.datasets.text_files import blocks
from rmc_jax.datasets.text_files import check
from rmc_jax.datasets.text_files import DatasetError
from rmc_jax.datasets.text_files import find
from rmc_jax.datasets.text_files import pieces
from rmc_jax.datasets.text_files import Source

SPLITS = ('train', 'valid', 'test')
# The only format that TFDS writes and reads correctly without TensorFlow.
FILE_FORMAT = 'array_record'
COUNTS = ('documents', 'tokens', 'characters', 'bytes')
Sources = Mapping[str, Sequence[Source]]


class TextBuilder(tfds.core.GeneratorBasedBuilder, skip_registration=True):
  """A corpus of text: split -> documents in order -> records of about 1 MB.

  A record is {'document': the document's name, 'text': a piece of it}. Joined,
  the pieces of a document are its text.

  A subclass defines:
    DESCRIPTION, CITATION, HOMEPAGE, LICENSE: for the user.
    MANUAL_DOWNLOAD_INSTRUCTIONS: the files and their names.
    STYLE: of `tasks.language.tokens.tokenize`.
    FILES: names of the file of a split, with {} for the split; or `_sources`.
    ARCHIVE, MEMBER: the published zip archive, and the file of a split in it.
    URL: the file to download; '' if the licence forbids it.
    PUBLISHED: split -> its size in the published corpus, in `UNIT`.
    UNIT: one of `COUNTS`. Tokens are words between white space, and one more
      for every line.
    SPLITS: the names of the splits.
    RECORDS_PER_SHARD: for shards of a few hundred megabytes.
  """

  VERSION = tfds.core.Version('1.0.0')
  RELEASE_NOTES: ClassVar[dict[str, str]] = {'1.0.0': 'First version.'}
  DESCRIPTION = CITATION = HOMEPAGE = LICENSE = STYLE = ''
  ARCHIVE = MEMBER = URL = ''
  FILES: ClassVar[tuple[str, ...]] = ()
  PUBLISHED: ClassVar[Mapping[str, int]] = {}
  UNIT = 'tokens'
  SPLITS: ClassVar[tuple[str, ...]] = SPLITS
  RECORDS_PER_SHARD = 256

  def __init_subclass__(cls, **kwargs):
    # `load.py` lists the builders; TFDS has a gigaword of its own.
    super().__init_subclass__(skip_registration=True, **kwargs)

  @property
  def can_download(self) -> bool:
    """Whether the corpus can be downloaded without the user's help."""
    return bool(self.URL)

  @property
  def counts(self) -> dict[str, dict[str, int]]:
    """Split -> {one of `COUNTS` -> its value} of the prepared corpus."""
    return cast(dict[str, dict[str, int]], self.info.metadata)

  def file_name(self, split: str) -> str:
    """The published name of the file of a split, for messages."""
    return self.FILES[0].format(split) if self.FILES else split

  def _sources(self, path: pathlib.Path) -> Sources:
    """Split -> its files in order, in the user's folder or in a download."""
    archive = path / self.ARCHIVE if path.is_dir() else path
    if archive.is_file():
      return {s: [Source(archive, self.MEMBER.format(s))] for s in SPLITS}
    return {
      split: [find(path, [name.format(split) for name in self.FILES])]
      for split in self.SPLITS
    }

  def _download(self, dl_manager: tfds.download.DownloadManager) -> Sources:
    """Downloads the corpus; returns split -> its files in order."""
    return self._sources(self._fetch(dl_manager, self.URL))

  def _documents(self, source: Source) -> Iterator[tuple[str, Iterator[str]]]:
    """Yields the name and parts of each document; empty ones are skipped."""
    yield source.title, blocks(source)

  def _fetch(self, dl_manager: tfds.download.DownloadManager, urls: Any) -> Any:
    """Downloads a URL, or a dict of URLs; returns the path or paths."""
    try:
      paths = dl_manager.download(urls)
    except (OSError, tfds.download.DownloadError) as error:
      raise DatasetError(
        f'{self.name} could not be downloaded: {error}. Try again, or fetch '
        'it by other means and name its folder (--manual_dir). '
        f'{self.MANUAL_DOWNLOAD_INSTRUCTIONS}'
      ) from error
    if isinstance(paths, dict):
      return {key: pathlib.Path(path) for key, path in paths.items()}
    return pathlib.Path(paths)

  def _info(self) -> tfds.core.DatasetInfo:
    return tfds.core.DatasetInfo(
      builder=self,
      description=self.DESCRIPTION,
      citation=self.CITATION,
      homepage=self.HOMEPAGE,
      license=self.LICENSE,
      features=tfds.features.FeaturesDict(
        {'document': tfds.features.Text(), 'text': tfds.features.Text()}
      ),
      disable_shuffling=True,
      metadata=tfds.core.MetadataDict(),
    )

  def _split_generators(self, dl_manager: tfds.download.DownloadManager):
    try:
      folder = pathlib.Path(dl_manager.manual_dir)
    except AssertionError:  # Raised by TFDS if there is no manual folder.
      sources = self._download(dl_manager)
    else:
      sources = self._sources(folder)
    for source in itertools.chain(*sources.values()):
      check(source)
    return {
      split: self._generate_examples(split, files)
      for split, files in sources.items()
    }

  def _generate_examples(self, split: str, sources: Sequence[Source]):
    """Yields records; the counts go to the metadata at the end."""
    counts: dict[str, int] = dict.fromkeys(COUNTS, 0)
    with Progress(split, len(sources)) as progress:
      for files, source in enumerate(sources):
        for name, parts in self._documents(source):
          text = ''
          for text in pieces(parts):
            counts['tokens'] += len(text.split()) + text.count('\n')
            counts['characters'] += len(text)
            counts['bytes'] += len(text.encode())
            progress.update(files, counts['bytes'])
            yield {'document': name, 'text': text}
          if text:
            counts['documents'] += 1
            # A last line without a line end counts too.
            counts['tokens'] += not text.endswith('\n')
        progress.update(files + 1, counts['bytes'])
    self._check_counts(split, counts, sources)
    self.counts[split] = counts

  def _check_counts(
    self, split: str, counts: Mapping[str, int], sources: Sequence[Source]
  ) -> None:
    count = counts[self.UNIT]
    published = self.PUBLISHED.get(split, count)
    if count != published:
      more = f' and {len(sources) - 1:,} more' if len(sources) > 1 else ''
      raise DatasetError(
        f'The {split} split of {self.name} has {count:,} {self.UNIT}; the '
        f'corpus has {published:,}. Incomplete or another version: '
        f'{sources[0]}{more}. {self.MANUAL_DOWNLOAD_INSTRUCTIONS}'
      )

  def _download_and_prepare(self, dl_manager, download_config) -> None:
    """Writes every split; TFDS renames the folder when it is complete."""
    # `self.info` has the final folder; a new one has the temporary folder.
    written = self._info()
    writer = tfds.core.SequentialWriter(
      written, self.RECORDS_PER_SHARD, file_format=FILE_FORMAT
    )
    for split, records in self._split_generators(dl_manager).items():
      writer.initialize_splits([split])
      # Typed as a list, but iterated over once, so a generator will do.
      writer.add_examples({split: cast(Any, records)})
    writer.close_all()
    self.info.set_splits(written.splits)
