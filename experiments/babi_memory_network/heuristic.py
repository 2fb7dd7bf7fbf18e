"""Which statements to choose, guessed from words: no labels of the facts.

MemNN-WSH in Sukhbaatar et al. 2015, section 4.3: the first statement should
share a word with the question, the second one with the first and one with the
answer.
"""

from collections.abc import Mapping

import jax.numpy as jnp

from rmc_jax.models.memory_network import Choose
from rmc_jax.models.memory_network import tournament
from rmc_jax.types import Array

NUM_HOPS = 2


def valid(batch: Mapping[str, Array], chosen: Array) -> Array:
  """Returns the statements that each hop may choose, [B, 2, M + 1] bool.

  Args:
    batch: of `experiments.babi.questions.Batches`, with n-grams.
    chosen: [B, 2] the slot that each hop chose.
  """
  first, second = _valid_first(batch), _valid_second(batch, chosen[:, 0])
  return jnp.pad(jnp.stack([first, second], 1), ((0, 0), (0, 0), (0, 1)))


def choose_valid(batch: Mapping[str, Array]) -> Choose:
  """Chooses the best of the valid statements; of all, if none is valid."""

  def choose(hop, preference, possible, chosen):
    mask = _valid_second(batch, chosen[0]) if hop else _valid_first(batch)
    mask = jnp.pad(mask, ((0, 0), (0, 1))) & possible
    mask = jnp.where(mask.any(-1, keepdims=True), mask, possible)
    return tournament(preference, mask)

  return choose


def _valid_first(batch: Mapping[str, Array]) -> Array:
  """Returns the statements [B, M] that share a word with the question."""
  story, question = _words(batch, 'story'), _words(batch, 'question')
  return _share(story, question)


def _valid_second(batch: Mapping[str, Array], first: Array) -> Array:
  """Returns those that share one with the first and one with the answer."""
  story = _words(batch, 'story')
  slot = jnp.minimum(first, story.shape[1] - 1)
  fact = jnp.take_along_axis(story, slot[:, None, None], axis=1)[:, 0]
  has_answer = (story == batch['answer'][:, None, None]).any(-1)  # [B, M]
  return _share(story, fact) & has_answer


def _words(batch: Mapping[str, Array], name: str) -> Array:
  """Returns the words [..., F] of n-grams; 0 for longer ones."""
  ids = batch[name]
  vocabulary = batch['sizes'][:, 0].reshape(-1, *[1] * (ids.ndim - 1))
  return jnp.where(ids < vocabulary, ids, 0)


def _share(story: Array, words: Array) -> Array:
  """Returns the statements [B, M] of [B, M, F] with one of the words [B, F]."""
  same = story[..., None] == words[:, None, None]  # [B, M, F, F]
  return (same & (story > 0)[..., None]).any((-1, -2))
