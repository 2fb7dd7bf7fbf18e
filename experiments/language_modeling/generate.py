"""Generates text: each word is drawn from the model's distribution."""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from rmc_jax.tasks.language.vocabulary import Vocabulary
from rmc_jax.types import Array
from rmc_jax.types import ArrayTree

# (id (), state of one example) -> log probs [V] of the next word, next state
NextWord = Callable[[Array, ArrayTree], tuple[Array, ArrayTree]]


def generate(
  next_word: NextWord,
  state: ArrayTree,
  vocabulary: Vocabulary,
  prompt: Sequence[str],
  num_words: int,
  *,
  temperature: float = 1.0,
  top_k: int | None = None,
  unknown: bool = False,
  seed: int = 0,
) -> Iterator[str]:
  """Yields the words of the prompt, and then generated ones.

  Args:
    next_word: see `NextWord`; jitted.
    state: the core's state at the start of the text.
    vocabulary: of the model.
    prompt: words that the text begins with.
    num_words: how many to generate.
    temperature: divides the log probabilities; 0 for the likeliest word.
    top_k: how many of the likeliest words to draw from; None for all.
    unknown: whether <unk> may be drawn; without it the other words share its
      probability.
    seed: of the random draws.
  """
  log_probs, state = next_word(jnp.int32(vocabulary.eos), state)
  for index in vocabulary.encode(prompt):
    yield vocabulary.words[index]
    log_probs, state = next_word(jnp.int32(index), state)
  key = jax.random.key(seed)
  for step in range(num_words):
    if not unknown:
      log_probs = log_probs.at[vocabulary.unk].set(-jnp.inf)
    word = draw(jax.random.fold_in(key, step), log_probs, temperature, top_k)
    yield vocabulary.words[int(word)]
    log_probs, state = next_word(word, state)


def draw(
  key: Array, log_probs: Array, temperature: float, top_k: int | None
) -> Array:
  """Draws an id () from softmax(log p [V] / temperature); consumes the key."""
  values, ids = jax.lax.top_k(log_probs, top_k or len(log_probs))
  if temperature == 0:
    return ids[0]
  return ids[jax.random.categorical(key, values / temperature)]
