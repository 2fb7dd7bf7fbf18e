"""What a finished run leaves: perplexities, samples, an attention trace."""

import json
from typing import Any
from typing import TYPE_CHECKING

import numpy as np

from experiments.language_modeling import analysis
from experiments.language_modeling import network
from experiments.language_modeling import perplexity
from experiments.language_modeling.corpus import Corpus
from experiments.language_modeling.generate import generate
from rmc_jax import files
from rmc_jax.cores.build import ATTENDING
from rmc_jax.training import Runner
from rmc_jax.types import ArrayTree

if TYPE_CHECKING:
  from experiments.language_modeling.train import Config


def write(
  config: 'Config',
  make_model: network.MakeModel,
  params: ArrayTree,
  corpus: Corpus,
  runner: Runner,
) -> None:
  """Measures a trained model and writes what `analysis.report` reads.

  Every process of a job must call it.
  """
  model = network.make_evaluated(make_model)
  summary = _measure(config, model, params, corpus, runner.progress)
  if not runner.is_primary:
    return
  workdir, vocabulary = runner.workdir, corpus.vocabulary
  text = json.dumps(summary, indent=1)
  files.atomic_write(workdir / analysis.SUMMARY, text.encode())
  params = perplexity.local(params)
  next_word = network.make_next_word(make_model, params)
  samples = [
    generate(
      next_word,
      model.initial_state(1),
      vocabulary,
      [],
      50,
      temperature=0.8,
      top_k=min(40, vocabulary.size),
      seed=seed,
    )
    for seed in range(3)
  ]
  text = '\n\n'.join(map(' '.join, samples))
  (workdir / analysis.SAMPLES).write_text(text + '\n')
  if config.core.name in ATTENDING:
    ids = np.asarray(corpus.ids['valid'][:40], np.int32)
    steps = network.trace(make_model, params, ids)
    path = workdir / analysis.TRACE_DATA
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, Any] = {
      'words': vocabulary.decode(ids),
      'attention': steps.attention[:, 0, 0],  # [T, H, N, N + 1]
    }
    for name, gate in steps.gates.items():
      arrays[f'{name}_gate'] = gate[:, 0]  # [T, N, G]
    np.savez(path, **arrays)


def _measure(
  config: 'Config',
  model: perplexity.Model,
  params: ArrayTree,
  corpus: Corpus,
  progress_fn: perplexity.ProgressFn,
) -> dict[str, Any]:
  """Returns all perplexities as plain numbers."""
  vocabulary, splits = corpus.vocabulary, {}
  for split in ('valid', 'test'):
    ids = corpus.ids[split]
    log_probs = perplexity.token_log_probs(
      model,
      params,
      ids,
      config.window,
      vocabulary.eos,
      num_rows=config.eval_rows,
      name=split,
      progress_fn=progress_fn,
    )
    unigram = perplexity.unigram_log_probs(ids, vocabulary)
    splits[split] = {
      'perplexity': perplexity.perplexity(log_probs),
      'unigram': perplexity.perplexity(unigram),
      'tokens': len(log_probs),
      'by_frequency': perplexity.by_frequency(log_probs, ids, vocabulary),
    }
  by_length = perplexity.by_length(
    model,
    params,
    corpus.ids['valid'],
    config.eval_lengths,
    vocabulary.eos,
    name='valid',
    progress_fn=progress_fn,
  )
  uniform = vocabulary.size
  return {'uniform': uniform, 'splits': splits, 'by_length': by_length}
