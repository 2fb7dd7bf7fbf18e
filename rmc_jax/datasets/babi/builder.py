"""Builder of the 20 bAbI tasks: a split for training and test of each.

Stories are stored as they are in the files; `rmc_jax.tasks.babi` parses them.
"""

from collections.abc import Iterator
import json
import pathlib
import re
import tarfile

import tensorflow_datasets as tfds

from rmc_jax.datasets.progress import log
from rmc_jax.datasets.text_builder import Sources
from rmc_jax.datasets.text_builder import TextBuilder
from rmc_jax.datasets.text_files import DatasetError
from rmc_jax.datasets.text_files import open_text
from rmc_jax.datasets.text_files import Source

TASKS = range(1, 21)
_QUESTIONS = {'en': 1000, 'en-10k': 10_000}  # for training; 1000 for test
_NAMES = (
  'single-supporting-fact', 'two-supporting-facts', 'three-supporting-facts',
  'two-arg-relations', 'three-arg-relations', 'yes-no-questions', 'counting',
  'lists-sets', 'simple-negation', 'indefinite-knowledge', 'basic-coreference',
  'conjunction', 'compound-coreference', 'time-reasoning', 'basic-deduction',
  'basic-induction', 'positional-reasoning', 'size-reasoning', 'path-finding',
  'agents-motivations',
)  # fmt: skip


class Babi(TextBuilder):
  """bAbI in English, release 1.2, with 1,000 or 10,000 training questions."""

  name = 'babi'
  BUILDER_CONFIGS = [tfds.core.BuilderConfig(name=name) for name in _QUESTIONS]
  SPLITS = tuple(f'qa{t}_{split}' for t in TASKS for split in ('train', 'test'))
  DESCRIPTION = 'Stories with questions that need one kind of reasoning each.'
  CITATION = (
    'Jason Weston et al.: Towards AI-Complete Question Answering: A Set of '
    'Prerequisite Toy Tasks. arXiv 1502.05698, 2015.'
  )
  HOMEPAGE = 'https://research.facebook.com/downloads/babi/'
  LICENSE = 'Creative Commons Attribution 3.0 Unported'
  MANUAL_DOWNLOAD_INSTRUCTIONS = (
    'Needed in the folder, at any depth: en/ or en-10k/ with 40 files such as '
    'qa1_single-supporting-fact_train.txt, as in tasks_1-20_v1-2.tar.gz; or '
    'JSON lines such as qa1_train.jsonl, or train.jsonl and test.jsonl with '
    'the tasks of one version.'
  )
  URL = 'http://www.thespermwhale.com/jaseweston/babi/tasks_1-20_v1-2.tar.gz'

  @property
  def _release(self) -> str:
    config = self.builder_config
    assert config is not None  # `load.py` passes one.
    return config.name

  def _download(self, dl_manager: tfds.download.DownloadManager) -> Sources:
    archive = self._fetch(dl_manager, self.URL)
    folder = archive.with_name(f'{archive.name}.unpacked')
    try:
      with tarfile.open(archive) as tar:
        tar.extractall(folder, filter='data')
    except (OSError, tarfile.TarError) as error:
      raise DatasetError(
        f'{archive} cannot be unpacked: {error}. Delete it and prepare again.'
      ) from error
    return self._sources(folder)

  def _sources(self, path: pathlib.Path) -> Sources:
    """Finds the files; a task without its files cannot be used."""
    version = self._release
    found, missing = {}, []
    for split in self.SPLITS:
      if source := _find(path, version, split, self.file_name(split)):
        found[split] = [source]
      else:
        missing.append(self.file_name(split))
    if len(found) < len(self.SPLITS) // 2:
      raise DatasetError(
        f'{path} has no {missing[0]}, and {len(missing) - 1} more files are '
        f'missing. {self.MANUAL_DOWNLOAD_INSTRUCTIONS}'
      )
    for name in missing:
      log(f'{path} has no {version}/{name}: that task cannot be used.')
    return found

  def file_name(self, split: str) -> str:
    task, _, kind = split.partition('_')
    return f'{task}_{_NAMES[int(task[2:]) - 1]}_{kind}.txt'

  def _documents(self, source: Source) -> Iterator[tuple[str, Iterator[str]]]:
    """Yields the text of a file, or of one task in it."""
    with open_text(source._replace(name='')) as file:
      lines = [line for line in file if line.strip()]
    split = source.name
    try:
      if source.path.name in ('train.jsonl', 'test.jsonl'):
        task = int(re.findall(r'\d+', split)[0])
        lines = [line for line in lines if json.loads(line)['task'] == task]
      questions = sum(map(_count_questions, lines))
    except (KeyError, TypeError, ValueError) as error:
      raise DatasetError(
        f'{source.path} is not JSON lines of questions ({error!r}). Fetch it '
        f'again. {self.MANUAL_DOWNLOAD_INSTRUCTIONS}'
      ) from error
    expected = 1000
    if split.endswith('train'):
      expected = _QUESTIONS[self._release]
    if questions != expected:
      raise DatasetError(
        f'{source.path} has {questions:,} questions of {split}; the corpus has '
        f'{expected:,}. Incomplete or another version. '
        f'{self.MANUAL_DOWNLOAD_INSTRUCTIONS}'
      )
    yield split, iter(lines)


def _find(
  path: pathlib.Path, version: str, split: str, name: str
) -> Source | None:
  """Returns the file of a split, if there is one, named after the split."""
  kind = split.partition('_')[2]
  for pattern in (
    f'{version}/{name}',
    f'{version}/{split}.jsonl',
    f'{version}/{kind}.jsonl',
  ):
    for file in sorted(path.rglob(pattern)):
      return Source(file, name=split)
  return None


def _count_questions(line: str) -> int:
  if not line.lstrip().startswith('{'):
    return '\t' in line
  content = json.loads(line)
  return sum(content['story']['type']) if 'story' in content else 1
