"""Text from a model: each word drawn from what it says of the next."""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from rmc_jax.tasks.language.vocabulary import Vocabulary
from rmc_jax.types import Array
from rmc_jax.types import ArrayTree

# (id (), state of one example) -> log probs [V] of the next word, next state
Read = Callable[[Array, ArrayTree], tuple[Array, ArrayTree]]


def generate(
  read: Read,
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
  """The words of the prompt, and then those that are drawn.

  Args:
    read: see `Read`; jitted.
    state: the core's, before the text begins.
    vocabulary: of the model.
    prompt: words that the text begins with.
    num_words: how many to draw.
    temperature: see `draw`.
    top_k: see `draw`.
    unknown: whether the word that stands for all unknown ones may be drawn;
      without it the others share its probability.
    seed: of what is drawn.

  Yields:
    Words as the vocabulary has them.
  """
  log_probs, state = read(jnp.int32(vocabulary.eos), state)
  for index in vocabulary.encode(prompt):
    yield vocabulary.words[index]
    log_probs, state = read(jnp.int32(index), state)
  key = jax.random.key(seed)
  for step in range(num_words):
    if not unknown:
      log_probs = log_probs.at[vocabulary.unk].set(-jnp.inf)
    word = draw(jax.random.fold_in(key, step), log_probs, temperature, top_k)
    yield vocabulary.words[int(word)]
    log_probs, state = read(word, state)


def draw(
  key: Array, log_probs: Array, temperature: float, top_k: int | None
) -> Array:
  """One id, with probability softmax(log p / temperature) among the likeliest.

  Args:
    key: random key, consumed.
    log_probs: [V].
    temperature: 0 for the likeliest.
    top_k: among how many; None for all.

  Returns:
    () integer.
  """
  values, ids = jax.lax.top_k(log_probs, top_k or len(log_probs))
  if temperature == 0:
    return ids[0]
  return ids[jax.random.categorical(key, values / temperature)]
