"""What a finished run leaves: perplexities, samples, an attention trace."""

import functools
import json

import jax
import numpy as np

from experiments.language_modeling import analysis
from experiments.language_modeling import network
from experiments.language_modeling import perplexity
from experiments.language_modeling.corpus import Corpus
from experiments.language_modeling.generate import generate
from rmc_jax import files
from rmc_jax.training import Runner
from rmc_jax.types import ArrayTree


def write(
  make_model: network.MakeModel,
  params: ArrayTree,
  corpus: Corpus,
  runner: Runner,
  *,
  window: int,
  num_rows: int,
  lengths: tuple[int, ...],
  has_attention: bool,
) -> None:
  """Measures a trained model and writes what `analysis.report` reads.

  Every process of a job must call it, with the arguments of
  `perplexity.summary`, and whether the core has attention to record.
  """
  summary = perplexity.summary(
    network.make_evaluated(make_model),
    params,
    corpus.ids,
    corpus.vocabulary,
    window=window,
    num_rows=num_rows,
    lengths=lengths,
    progress_fn=runner.progress,
  )
  if not runner.is_primary:
    return
  text = json.dumps(summary, indent=1)
  files.atomic_write(runner.workdir / analysis.SUMMARY, text.encode())
  params = jax.tree.map(lambda leaf: leaf.addressable_data(0), params)
  analysis.save_samples(runner.workdir, _samples(make_model, params, corpus))
  if has_attention:
    ids = np.asarray(corpus.ids['valid'][:40], np.int32)
    steps = network.trace(make_model, params, ids)
    analysis.save_attention_trace(
      runner.workdir,
      words=corpus.vocabulary.decode(ids),
      attention=steps.attention[:, 0, 0],  # [T, H, N, N + 1]
      gates={name: gate[:, 0] for name, gate in steps.gates.items()},
    )


def _samples(
  make_model: network.MakeModel, params: ArrayTree, corpus: Corpus
) -> list[str]:
  """Three texts of fifty words."""
  sample = functools.partial(
    generate,
    network.make_next_word(make_model, params),
    network.make_evaluated(make_model).initial_state(1),
    corpus.vocabulary,
    [],
    50,
    temperature=0.8,
    top_k=min(40, corpus.vocabulary.size),
  )
  return [' '.join(sample(seed=seed)) for seed in range(3)]
