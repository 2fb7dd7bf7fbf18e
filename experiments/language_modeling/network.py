"""The language model as pure functions: training, evaluation, generation.

Each takes `make_model`, which builds the `LanguageModel` in an `hk.transform`.
"""

from collections.abc import Callable
import functools

import haiku as hk
import jax
import numpy as np

from experiments.language_modeling.generate import NextWord
from experiments.language_modeling.perplexity import Model
from rmc_jax.cores import StepTrace
from rmc_jax.models import LanguageModel
from rmc_jax.types import ArrayTree

MakeModel = Callable[[], LanguageModel]


def make_loss(make_model: MakeModel) -> hk.Transformed:
  """(inputs, targets, state, reset) -> (loss, weight), state; in training."""

  @hk.transform
  def cross_entropy(inputs, targets, state, reset):
    network = make_model()
    hidden, state = network(inputs, state, reset, is_training=True)
    loss = network.cross_entropy(hidden, targets, is_training=True)
    return loss, state

  return cross_entropy


def make_evaluated(make_model: MakeModel) -> Model:
  """The model with dropout off and the exact softmax."""

  @hk.without_apply_rng
  @hk.transform
  def log_probs(inputs, targets, state, reset=None):
    network = make_model()
    hidden, state = network(inputs, state, reset)
    return network.log_probs(hidden, targets), state

  initial_state = hk.transform(lambda size: make_model().initial_state(size))
  return Model(
    log_probs.apply, lambda size: initial_state.apply({}, None, size)
  )


def make_next_word(make_model: MakeModel, params: ArrayTree) -> NextWord:
  """The model word by word, for `generate`."""

  @hk.without_apply_rng
  @hk.transform
  def next_word(word, state):
    network = make_model()
    hidden, state = network(word[None, None], state)
    return network.all_log_probs(hidden[0, 0]), state

  return functools.partial(jax.jit(next_word.apply), params)


def trace(
  make_model: MakeModel, params: ArrayTree, ids: np.ndarray
) -> StepTrace:
  """Attention and gates at each word of a text, [T, 1, ...]."""

  @hk.without_apply_rng
  @hk.transform
  def trace_steps(inputs):
    network = make_model()
    return network.trace(inputs, network.initial_state(1))

  return jax.jit(trace_steps.apply)(params, ids[None])
