"""Presets and sweeps of Nth Farthest: paper, authors' script, quick."""

# Santoro et al. 2018, appendix A.1. The paper gives no number of updates; the
# authors' script has a million.
PAPER = {
  'num_objects': 8,
  'num_features': 16,
  'order': 'farthest',
  'core': {
    'name': 'relational_memory',
    'mem_slots': 8,
    'head_size': 32,
    'num_heads': 8,
  },
  'hidden_sizes': (256, 256, 256, 256),
  'batch_size': 1600,
  'optimizer': {'name': 'adam', 'learning_rate': 1e-4},
  'eval_examples': 16_000,
  'run': {'num_steps': 1_000_000, 'updates_per_call': 20},
}

# sonnet/examples/rmc_nth_farthest.py of dm-sonnet 1.36, with its flags used as
# their help texts say. Its dataset has m before n in the inputs, ours n before
# m as in the paper, which permutes the rows of one weight matrix.
AUTHORS = PAPER | {
  'num_objects': 4,
  'num_features': 4,
  'order': 'nearest',
  'core': {
    'name': 'relational_memory',
    'mem_slots': 4,
    'head_size': 2048,
    'num_heads': 1,
    'num_blocks': 1,
    'gate_style': 'unit',
  },
  'optimizer': {
    'name': 'adam',
    'learning_rate': 1e-4,
    'schedule': 'exponential',
    'decay_rate': 0.9,
    'decay_every': 10_000,
    'floor': 8e-5,
  },
}

# The smallest setting at which the relational memory core learns what an LSTM
# does not, in minutes on two CPU cores; see docs/results.md.
QUICK = PAPER | {
  'num_objects': 4,
  'num_features': 2,
  'core': {
    'name': 'relational_memory',
    'mem_slots': 4,
    'head_size': 8,
    'num_heads': 8,
  },
  'hidden_sizes': (128, 128, 128, 128),
  'batch_size': 256,
  'optimizer': {
    'name': 'adam',
    'learning_rate': 4e-4,
    'schedule': 'cosine',
    'hold_steps': 9000,
    'decay_steps': 4000,
    'floor': 4e-5,
  },
  'eval_examples': 10_000,
  'run': {'num_steps': 13_000, 'updates_per_call': 50},
}


def _with_core(preset: dict, **core) -> dict:
  return preset | {'core': preset['core'] | core}


def _grid(num_features: int, suffix: str = '') -> dict[str, dict]:
  """2048 units in 1, 8 or 16 slots of 1, 8 or 16 heads, gated two ways."""
  return {
    f'paper_{slots}_slots_{heads}_heads_{gates}{suffix}': _with_core(
      PAPER | {'num_features': num_features},
      mem_slots=slots,
      num_heads=heads,
      head_size=2048 // (slots * heads),
      gate_style=gates,
    )
    for slots in (1, 8, 16)
    for heads in (1, 8, 16)
    for gates in ('unit', 'memory')
  }


PRESETS = {
  'quick': QUICK,
  # As many units as the four slots have together.
  'quick_lstm': QUICK | {'core': {'name': 'lstm', 'hidden_size': 256}},
  'quick_paper_core': _with_core(QUICK, name='paper_relational_memory'),
  'paper': PAPER,
  'paper_paper_core': _with_core(PAPER, name='paper_relational_memory'),
  **_grid(num_features=16),
  **_grid(num_features=32, suffix='_32_features'),
  # "hidden sizes ranging from 64 up to 4096 units"
  **{
    f'paper_lstm_{size}': PAPER
    | {'core': {'name': 'lstm', 'hidden_size': size}}
    for size in (64, 128, 256, 512, 1024, 2048, 4096)
  },
  'authors': AUTHORS,
  # As shipped, the script reads the number of memories where it should read
  # heads and blocks: a core of 1.2 billion parameters.
  'authors_as_shipped': _with_core(AUTHORS, num_heads=4, num_blocks=4),
}

# Sweeps of the launchers (--sweep): name -> run -> the trainer's flags.
SWEEPS = {
  'quick_seeds': {
    f'seed_{seed}': {'preset': 'quick', 'config.run.seed': seed}
    for seed in range(5)
  },
  # The cores of figure 4 at the paper's size.
  'paper_cores': {
    name: {'preset': name}
    for name in ('paper', 'paper_paper_core', 'paper_lstm_2048')
  },
  'paper_grid': {name: {'preset': name} for name in _grid(num_features=16)},
  'paper_grid_32_features': {
    name: {'preset': name}
    for name in _grid(num_features=32, suffix='_32_features')
  },
  'paper_lstms': {
    name: {'preset': name} for name in PRESETS if 'paper_lstm' in name
  },
}
