"""Presets and sweeps: table 2 of the paper, WikiText-2, a size for a laptop."""

BATCH_SIZE = 128


def _run(words: int, epochs: int = 100) -> dict:
  """A run of epochs of as many random words as the training text has.

  The authors' code ends after 100 epochs. The rate falls below its minimum
  after about 50.
  """
  epoch = -(-words // BATCH_SIZE)  # updates
  return {
    'num_steps': epochs * epoch,
    'log_every': 500,
    'eval_every': epoch,
    'checkpoint_every': epoch,
  }


# Sukhbaatar et al. 2015, section 5 and table 2; `Config` has the other values.
PTB = {'corpus': 'ptb', 'run': _run(929_589)}
TEXT8 = {
  'corpus': 'text8',
  'vocabulary_size': 44_000,
  'embedding_size': 500,
  'num_linear': 250,
  'run': _run(15_300_000),  # about as many words
}

PRESETS = {
  # In minutes on two CPU cores.
  'quick': {
    'corpus': 'wikitext2',
    'vocabulary_size': 5000,
    'embedding_size': 64,
    'num_linear': 32,
    'num_hops': 3,
    'memory_size': 50,
    'eval_tokens': 20_000,
    'run': {
      'num_steps': 24_000,
      'log_every': 500,
      'eval_every': 4000,
      'checkpoint_every': 4000,
    },
  },
  'wikitext2': {'corpus': 'wikitext2', 'run': _run(2_088_628)},
  'ptb': PTB,
  'text8': TEXT8,
}

# (hops, memory) of the rows of table 2.
ROWS = (
  (2, 100), (3, 100), (4, 100), (5, 100), (6, 100), (7, 100),
  (6, 25), (6, 50), (6, 75), (6, 125), (6, 150),
)  # fmt: skip


def _table(preset: str, rows: tuple) -> dict:
  return {
    f'{hops}_hops_{memory}': {
      'preset': preset,
      'config.num_hops': hops,
      'config.memory_size': memory,
    }
    for hops, memory in rows
  }


SWEEPS = {
  'table_2_ptb': _table('ptb', (*ROWS, (7, 200))),
  'table_2_text8': _table('text8', ROWS),
  # The paper takes the lowest perplexity on valid of ten runs on Penn Treebank.
  'ptb_seeds': {
    f'seed_{seed}': {'preset': 'ptb', 'config.run.seed': seed}
    for seed in range(10)
  },
}
