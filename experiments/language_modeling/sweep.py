"""Presets and sweeps: table 2, WikiText-2, and a size for a laptop."""

# Santoro et al. 2018, appendix A.4. The paper gives no number of updates; six
# P100s had 64 rows each.
PAPER = {
  'core': {
    'name': 'relational_memory',
    'mem_slots': 1,
    'head_size': 625,
    'num_heads': 4,
    'num_blocks': 1,
    'attention_mlp_layers': 5,
  },
  'embedding_size': 512,
  'embedding_dropout': 0.5,
  'batch_size': 384,
  'window': 100,
  'run': {'num_steps': 100_000},
  'optimizer': {'name': 'adam', 'learning_rate': 1e-3, 'clip_global_norm': 0.1},
}
# The state size of the paper's baselines with one layer.
LSTM = {'name': 'lstm', 'num_layers': 1, 'hidden_size': 2048}

# The best run of github.com/L0SG/relational-rnn-pytorch on WikiText-2, with 11
# million parameters: 107.2 on test, its LSTM 105.6. Adam, clipping at 0.1.
WIKITEXT2 = PAPER | {
  'corpus': 'wikitext2',
  'core': {
    'name': 'relational_memory',
    'mem_slots': 1,
    'head_size': 192,
    'num_heads': 4,
    'key_size': 64,
    'attention_mlp_layers': 3,
  },
  'embedding_size': 192,
  'output_dropout': 0.5,
  'batch_size': 64,
  'run': {'num_steps': 13_000, 'eval_every': 326, 'checkpoint_every': 326},
}

# In minutes on two CPU cores.
QUICK = PAPER | {
  'corpus': 'wikitext2',
  'vocabulary_size': 5000,
  'core': {
    'name': 'relational_memory',
    'mem_slots': 1,
    'head_size': 32,
    'num_heads': 4,
    'attention_mlp_layers': 2,
  },
  'embedding_size': 128,
  'embedding_dropout': 0.1,
  'batch_size': 32,
  'window': 35,
  'optimizer': {'name': 'adam', 'learning_rate': 1e-3, 'clip_global_norm': 1.0},
  'eval_tokens': 10_000,
  'run': {'num_steps': 4000, 'eval_every': 500, 'checkpoint_every': 500},
}

PRESETS = {
  'quick': QUICK,
  'quick_lstm': QUICK
  | {'core': {'name': 'lstm', 'num_layers': 1, 'hidden_size': 160}},
  'wikitext2': WIKITEXT2,
  'wikitext2_lstm': WIKITEXT2
  | {
    'core': {'name': 'lstm', 'num_layers': 1, 'hidden_size': 300},
    'embedding_size': 300,
  },
  'wikitext103': PAPER | {'corpus': 'wikitext103'},
  'wikitext103_lstm': PAPER | {'corpus': 'wikitext103', 'core': LSTM},
  'gutenberg': PAPER | {'corpus': 'gutenberg', 'vocabulary_size': 250_000},
  'gigaword': PAPER | {'corpus': 'gigaword', 'vocabulary_size': 250_000},
  'ptb': PAPER | {'corpus': 'ptb'},
  'text8': PAPER | {'corpus': 'text8', 'vocabulary_size': 44_000},
}

SWEEPS = {
  'quick_table': {
    'rmc': {'preset': 'quick'},
    'lstm': {'preset': 'quick_lstm'},
  },
  # quick_table with other seeds.
  'quick_seeds': {
    f'{name}_{seed}': {'preset': preset, 'config.run.seed': seed}
    for name, preset in (('rmc', 'quick'), ('lstm', 'quick_lstm'))
    for seed in (1, 2)
  },
  'wikitext2': {
    'rmc': {'preset': 'wikitext2'},
    'lstm': {'preset': 'wikitext2_lstm'},
  },
  'table_2': {
    name: {'preset': name} for name in ('wikitext103', 'gutenberg', 'gigaword')
  },
}
