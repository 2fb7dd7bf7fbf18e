"""The questions of the tasks, stacked for the members of an ensemble."""

from collections.abc import Sequence
import os
from typing import NamedTuple

import numpy as np

from rmc_jax.datasets import load
from rmc_jax.tasks import babi
from rmc_jax.tasks.babi.noise import consecutive_times
from rmc_jax.tasks.babi.noise import noisy_times
from rmc_jax.training import Source

_VALID = 10  # One question in this many is for validation.


class TrainingSets(NamedTuple):
  """G training sets, each a task, or all of them in joint training.

  Padding makes the arrays of all sets equal in shape.

  Attributes:
    names: [G] 'task 3', or 'joint'.
    vocabularies: [G] the symbols of each set.
    sizes: [G, 3] int32, see `rmc_jax.models.memn2n.Sizes`.
    train: leaves [G, number of questions, ...].
    valid: the same.
    test: the same.
    test_task: [G, number of questions] the task of each test question.
  """

  names: tuple[str, ...]
  vocabularies: tuple[babi.Vocabulary, ...]
  sizes: np.ndarray
  train: babi.Questions
  valid: babi.Questions
  test: babi.Questions
  test_task: np.ndarray


def open_sets(
  version: str,
  tasks: Sequence[int],
  joint: bool,
  data_dir: str | os.PathLike[str],
) -> TrainingSets:
  """Reads and encodes prepared tasks.

  As in the authors' code, the vocabulary has the symbols of training and test,
  the memory as many statements as the longest training story, at most 50, and
  validation is the last tenth of a task's questions; in joint training it is a
  random tenth of all.

  Raises:
    DatasetError: the data are not prepared, or a task is missing.
    MalformedStory: a prepared file is damaged.
  """
  groups = [tuple(tasks)] if joint else [(task,) for task in tasks]
  train, test = (
    [
      [q for task in group for q in _read(version, task, split, data_dir)]
      for group in groups
    ]
    for split in ('train', 'test')
  )
  vocabularies = tuple(map(babi.Vocabulary.build, train, test))
  sizes = np.array(list(map(_sizes, vocabularies, train, test)), np.int32)
  longest = int(sizes[:, 2].max())

  def encode(splits):
    encoded = [
      babi.encode(split, vocabulary, memory_size=memory, sentence_size=longest)
      for split, vocabulary, memory in zip(
        splits, vocabularies, sizes[:, 1], strict=True
      )
    ]
    return babi.Questions(*map(_stack, zip(*encoded, strict=True)))

  all_train = encode(train)
  total = all_train.answer.shape[1]
  order = np.arange(total)
  if joint:
    order = np.random.default_rng(0).permutation(total)
  first = total - total // _VALID
  return TrainingSets(
    names=('joint',) if joint else tuple(f'task {task}' for task in tasks),
    vocabularies=vocabularies,
    sizes=sizes,
    train=babi.Questions(*(leaf[:, order[:first]] for leaf in all_train)),
    valid=babi.Questions(*(leaf[:, order[first:]] for leaf in all_train)),
    test=encode(test),
    # Every task has as many test questions.
    test_task=np.repeat(groups, len(test[0]) // len(groups[0]), axis=1),
  )


def _read(
  version: str, task: int, split: str, data_dir: str | os.PathLike[str]
) -> list[babi.Question]:
  """Returns the questions of a task."""
  name = f'qa{task}_{split}'
  text = load.documents(f'babi/{version}', name, data_dir=data_dir)
  return babi.parse(''.join(text).splitlines(), name)


def _sizes(
  vocabulary: babi.Vocabulary,
  train: Sequence[babi.Question],
  test: Sequence[babi.Question],
) -> tuple[int, int, int]:
  """Returns the sizes of a training set, see `memn2n.Sizes`."""
  longest_story = max(len(question.statements) for question in train)
  longest_sentence = max(
    len(words)
    for question in (*train, *test)
    for words in (*question.statements, question.words)
  )
  return vocabulary.size, min(babi.MEMORY_SIZE, longest_story), longest_sentence


class Batches(Source):
  """Random questions for every member, with noise in time.

  Questions are drawn with replacement, as in the authors' code. A function of
  the seed and the step.

  Args:
    sets: G training sets; `sets_of_members` has that of each member.
    restarts: members per set.
    batch_size: B, questions of a member in an update.
    seed: of the draws.
    random_noise: see `noisy_times`; 0 for consecutive times.
    members: those of this process.
  """

  def __init__(
    self,
    sets: TrainingSets,
    restarts: int,
    batch_size: int,
    seed: int,
    random_noise: float,
    members: slice,
  ):
    self._sets = sets
    self._set = sets_of_members(sets, restarts)
    self._batch_size = batch_size
    self._seed = seed
    self._noise = random_noise
    self._members = members

  def batch(self, step: int) -> dict[str, np.ndarray]:
    """Returns leaves [members of this process, B, ...].

    The shortest story of a member is first.
    """
    train = self._sets.train
    generator = np.random.default_rng([self._seed, step])
    shape = len(self._set), self._batch_size
    index = generator.integers(0, train.answer.shape[1], shape)
    group = self._set[:, None]  # [members, 1]
    # The shortest story first, for `padding.skip_padding`.
    order = train.length[group, index].argsort(1, kind='stable')
    index = np.take_along_axis(index, order, 1)
    length = train.length[group, index]  # [members, B]
    memory_size = train.story.shape[2]
    if self._noise:
      time = noisy_times(
        generator,
        length.reshape(-1),
        memory_size,
        np.repeat(self._sets.sizes[self._set, 1], self._batch_size),
        self._noise,
      )
    else:
      time = consecutive_times(length.reshape(-1), memory_size)
    time = time.reshape(*shape, memory_size)
    own = self._members
    group, index = group[own], index[own]
    return {
      'story': train.story[group, index],
      'question': train.question[group, index],
      'answer': train.answer[group, index],
      'supporting': train.supporting[group, index],
      'time': time[own],
      'sizes': self._sets.sizes[np.broadcast_to(group, index.shape)],
    }


def sets_of_members(sets: TrainingSets, restarts: int) -> np.ndarray:
  """Returns the training set of every member, [G * restarts].

  0, 1, ..., 0, 1, ...: so each device has some of all sets, whose updates do
  not take the same time.
  """
  return np.tile(np.arange(len(sets.names)), restarts)


def in_order(
  sets: TrainingSets, questions: babi.Questions, restarts: int, members: slice
):
  """Yields all questions of a split, for every member of this process.

  Args:
    sets: the training sets.
    questions: `sets.train`, `sets.valid` or `sets.test`.
    restarts: members per set.
    members: those of this process.

  Yields:
    Leaves [members, at most 100 questions, ...], as `Batches.batch`.
  """
  group = sets_of_members(sets, restarts)[members]
  memory_size = questions.story.shape[2]
  total = questions.answer.shape[1]
  for first in range(0, total, 100):
    part = babi.Questions(*(leaf[:, first : first + 100] for leaf in questions))
    count = part.answer.shape[1]
    time = consecutive_times(part.length.reshape(-1), memory_size)
    time = time.reshape(-1, count, memory_size)
    sizes = np.repeat(sets.sizes[:, None], count, axis=1)
    yield {
      'story': part.story[group],
      'question': part.question[group],
      'answer': part.answer[group],
      'supporting': part.supporting[group],
      'time': time[group],
      'sizes': sizes[group],
    }


def example_batch(sets: TrainingSets) -> dict[str, np.ndarray]:
  """Returns leaves [questions, ...] of one member, to initialise a network."""
  batch = next(in_order(sets, sets.train, 1, slice(0, 1)))
  return {name: leaf[0] for name, leaf in batch.items()}


def _stack(arrays: Sequence[np.ndarray]) -> np.ndarray:
  """Stacks arrays, padded at their ends with zeros to the largest."""
  largest = np.max([array.shape for array in arrays], axis=0)
  return np.stack(
    [
      np.pad(
        array, [(0, n - m) for n, m in zip(largest, array.shape, strict=True)]
      )
      for array in arrays
    ]
  )
