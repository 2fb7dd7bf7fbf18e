"""Evaluates a model on a text, and writes what a finished run leaves."""

from collections.abc import Callable
import json

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np

from experiments.language_modeling import perplexity
from experiments.language_modeling.corpus import Corpus
from experiments.memory_language_model import analysis
from rmc_jax import files
from rmc_jax import losses
from rmc_jax import metrics
from rmc_jax import training
from rmc_jax.metrics import SumsAndCounts
from rmc_jax.tasks.language.contexts import contexts
from rmc_jax.training import Runner
from rmc_jax.training import TrainState


def make_evaluate(
  network: hk.Transformed, ids: np.ndarray, memory_size: int, batch_size: int
) -> Callable[[TrainState], SumsAndCounts]:
  """Makes a function that evaluates a model on a text.

  Each word after the first `memory_size` counts once. The result has the 'loss'
  [] and the 'attention' [K, N]. A collective of all processes.
  """

  def measure(params, network_state, batch):
    del network_state
    logits, attention = network.apply(params, batch[:, :-1])
    target = batch[:, -1].astype(jnp.int32)
    loss = jax.vmap(losses.softmax_cross_entropy)(logits, target)
    return {'loss': loss, 'attention': (attention, jnp.ones_like(attention))}

  examples = contexts(ids, memory_size)
  return training.make_evaluate(measure, examples, global_batch_size=batch_size)


def write(
  runner: Runner,
  network: hk.Transformed,
  corpus: Corpus,
  state: TrainState,
  memory_size: int,
  batch_size: int,
) -> None:
  """Writes perplexity and mean attention on valid and test.

  Every process of a job must call it.
  """
  splits = {}
  for done, split in enumerate(('valid', 'test')):
    runner.progress('evaluation of splits', done, 2)
    ids = corpus.ids[split]
    evaluate = make_evaluate(network, ids, memory_size, batch_size)
    means = metrics.divide(evaluate(state))
    counted = ids[memory_size:]
    unigram = perplexity.unigram_log_probs(counted, corpus.vocabulary)
    splits[split] = {
      'perplexity': perplexity.exp(means['loss']),
      'unigram': perplexity.perplexity(unigram),
      'words': len(counted),
      'attention': means['attention'],
    }
  if runner.is_primary:
    text = json.dumps({'uniform': corpus.vocabulary.size, 'splits': splits})
    files.atomic_write(runner.workdir / analysis.SUMMARY, text.encode())
