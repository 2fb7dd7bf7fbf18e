"""What all builders of text corpora share: records in order, counted, checked.

TFDS itself collects the examples of a split in memory, where it sorts them; it
needs TensorFlow beyond one gigabyte. Text that is read in order needs no
sorting, so here records go to their shards as they come.
"""

import abc
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import pathlib
from typing import Any
from typing import cast
from typing import ClassVar

import tensorflow_datasets as tfds

from rmc_jax.datasets.progress import Progress
from rmc_jax.datasets.text_files import blocks
from rmc_jax.datasets.text_files import check
from rmc_jax.datasets.text_files import DatasetError
from rmc_jax.datasets.text_files import pieces
from rmc_jax.datasets.text_files import Source

SPLITS = ('train', 'valid', 'test')
# The only format that TFDS writes and reads rightly without TensorFlow.
FILE_FORMAT = 'array_record'
COUNTS = ('documents', 'tokens', 'characters', 'bytes')
Sources = Mapping[str, Sequence[Source]]


class TextBuilder(tfds.core.GeneratorBasedBuilder, skip_registration=True):
  """A corpus of text: split -> documents in order -> records of about 1 MB.

  A record is {'document': the document's name, 'text': a piece of it}. Joined,
  the pieces of a document are its text.

  A subclass says where its files lie (`_sources`) and fills in:
    DESCRIPTION, CITATION, HOMEPAGE, LICENSE: for the user.
    MANUAL_DOWNLOAD_INSTRUCTIONS: which files, under which names.
    URL: what to download; '' where the licence forbids it.
    PUBLISHED: split -> {count -> what the corpus has}; see `COUNTS`. Tokens are
      words between white space, and one more for every line.
    RECORDS_PER_SHARD: so many that a shard has a few hundred megabytes.
  """

  VERSION = tfds.core.Version('1.0.0')
  RELEASE_NOTES: ClassVar[dict[str, str]] = {'1.0.0': 'First version.'}
  DESCRIPTION = CITATION = HOMEPAGE = LICENSE = URL = ''
  PUBLISHED: ClassVar[Mapping[str, Mapping[str, int]]] = {}
  RECORDS_PER_SHARD = 256

  def __init_subclass__(cls, **kwargs):
    # `load.py` names them. In TFDS's own list gigaword would be there twice.
    super().__init_subclass__(skip_registration=True, **kwargs)

  @abc.abstractmethod
  def _sources(self, path: pathlib.Path) -> Sources:
    """Split -> its files in order, in the user's folder or in a download."""

  @property
  def can_download(self) -> bool:
    """Whether the corpus can be had without the user's doing."""
    return bool(self.URL)

  @property
  def counts(self) -> dict[str, dict[str, int]]:
    """Split -> {one of `COUNTS` -> how many}, of what has been prepared."""
    return cast(dict[str, dict[str, int]], self.info.metadata)

  def _download(self, dl_manager: tfds.download.DownloadManager) -> Sources:
    """Split -> its files in order, fetched from where they are published."""
    return self._sources(self._fetch(dl_manager, self.URL))

  def _documents(self, source: Source) -> Iterator[tuple[str, Iterator[str]]]:
    """The documents of a file: name, and parts that joined are the text.

    Those without text are left out of everything.
    """
    yield source.title, blocks(source)

  def _fetch(self, dl_manager: tfds.download.DownloadManager, urls: Any) -> Any:
    """A tree of URLs -> the same tree of paths.

    Raises:
      DatasetError: the network or the server would not.
    """
    try:
      paths = dl_manager.download(urls)
    except (OSError, tfds.download.DownloadError) as error:
      raise DatasetError(
        f'{self.name} could not be downloaded: {error}. Try again, or fetch '
        'it another way and name its folder (--manual_dir). '
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
    except AssertionError:  # TFDS's way of saying that there is none.
      sources = self._download(dl_manager)
    else:
      sources = self._sources(folder)
    for split in SPLITS:
      for source in sources[split]:
        check(source)
    return {
      split: self._generate_examples(split, sources[split]) for split in SPLITS
    }

  def _generate_examples(self, split: str, sources: Sequence[Source]):
    """Yields (index, record); the counts go to the metadata at the end."""
    counts: dict[str, int] = dict.fromkeys(COUNTS, 0)
    index = 0
    with Progress(split, len(sources)) as progress:
      for files, source in enumerate(sources):
        for name, parts in self._documents(source):
          text = ''
          for text in pieces(parts):
            counts['tokens'] += len(text.split()) + text.count('\n')
            counts['characters'] += len(text)
            counts['bytes'] += len(text.encode())
            progress.update(files, counts['bytes'])
            yield index, {'document': name, 'text': text}
            index += 1
          if text:
            counts['documents'] += 1
            # The last line is one without a line end too.
            counts['tokens'] += not text.endswith('\n')
        progress.update(files + 1, counts['bytes'])
    self._check_counts(split, counts, sources)
    self.counts[split] = counts

  def _check_counts(
    self, split: str, counts: Mapping[str, int], sources: Sequence[Source]
  ) -> None:
    more = f' and {len(sources) - 1:,} more' if len(sources) > 1 else ''
    for what, published in self.PUBLISHED.get(split, {}).items():
      if counts[what] != published:
        raise DatasetError(
          f'The {split} split of {self.name} has {counts[what]:,} {what}; '
          f'the corpus has {published:,}. Incomplete or another version: '
          f'{sources[0]}{more}. {self.MANUAL_DOWNLOAD_INSTRUCTIONS}'
        )

  def _download_and_prepare(self, dl_manager, download_config) -> None:
    """Writes every split; TFDS renames the folder when all of it is there."""
    # `self.info` names the folder as it will be; a fresh one as it is now.
    written = self._info()
    writer = tfds.core.SequentialWriter(
      written, self.RECORDS_PER_SHARD, file_format=FILE_FORMAT
    )
    for split, examples in self._split_generators(dl_manager).items():
      writer.initialize_splits([split])
      # Typed as a list, but walked through once, which a stream is enough for.
      records: Any = (record for _, record in examples)
      writer.add_examples({split: records})
    writer.close_all()
    self.info.set_splits(written.splits)
