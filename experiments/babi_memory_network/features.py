"""Sentences as bags of n-grams."""

import numpy as np

from experiments.babi.questions import TrainingSets
from rmc_jax.tasks.babi import Questions


def with_ngrams(sets: TrainingSets, longest: int) -> TrainingSets:
  """Replaces the words of all sentences by their n-grams.

  Words keep their ids; n-grams of 2 words or more that occur in training follow
  them. Others are left out.

  Args:
    sets: with ids of words, [..., J].
    longest: the n of the longest n-grams.

  Returns:
    The sets with ids [..., F]; 0 is nil.
  """
  encoders = [_Ngrams(longest, int(size)) for size in sets.sizes[:, 0]]
  train, valid, test = (
    _encode(encoders, split, is_train)
    for split, is_train in (
      (sets.train, True), (sets.valid, False), (sets.test, False)
    )
  )  # fmt: skip
  return sets._replace(train=train, valid=valid, test=test)


class _Ngrams:
  """The n-grams of a training set, numbered as they occur."""

  def __init__(self, longest: int, vocabulary_size: int):
    self._longest = longest
    self._first = vocabulary_size
    self._ids: dict[tuple[int, ...], int] = {}

  def encode(self, sentences: np.ndarray, add: bool) -> np.ndarray:
    """Returns [..., F] ids for words [..., J]; `add` numbers new n-grams."""
    flat = sentences.reshape(-1, sentences.shape[-1])
    # A task has few different sentences.
    distinct, index = np.unique(flat, axis=0, return_inverse=True)
    num_words = sentences.shape[-1]
    size = sum(max(0, num_words - n) for n in range(self._longest))
    encoded = np.zeros((len(distinct), size), np.uint16)
    for row, sentence in zip(encoded, distinct.tolist(), strict=True):
      features = self._features([word for word in sentence if word], add)
      row[: len(features)] = features
    return encoded[index.reshape(-1)].reshape(*sentences.shape[:-1], size)

  def _features(self, words: list[int], add: bool) -> list[int]:
    features = list(words)
    for n in range(2, self._longest + 1):
      for start in range(len(words) - n + 1):
        ngram = tuple(words[start : start + n])
        if add:
          self._ids.setdefault(ngram, self._first + len(self._ids))
        if ngram in self._ids:
          features.append(self._ids[ngram])
    return features


def _encode(
  encoders: list[_Ngrams], questions: Questions, add: bool
) -> Questions:
  story, question = (
    np.stack(
      [
        encoder.encode(sentences, add)
        for encoder, sentences in zip(encoders, leaf, strict=True)
      ]
    )
    for leaf in (questions.story, questions.question)
  )
  return questions._replace(story=story, question=question)
