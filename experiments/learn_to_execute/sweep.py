"""Presets and sweeps: table 1, figure 8, and sizes for a laptop."""

# Santoro et al. 2018, appendix A.2; the norm of the clipping is our choice.
PAPER = {
  'max_length': 5,
  'max_nesting': 2,
  'grammar': 'authors',
  'curriculum': 'mix',
  'train_feed': 'zeros',
  'eval_feed': 'zeros',
  'hidden_sizes': (256, 256, 256, 256),
  'batch_size': 128,
  'optimizer': {'name': 'adam', 'learning_rate': 1e-3, 'clip_global_norm': 1.0},
  'eval_examples': 12_800,
  'run': {'num_steps': 200_000, 'updates_per_call': 20},
}

# Column of table 1 -> task. The paper's sample of "control" has + and if.
PROGRAMS = {
  'addition': 'addition',
  'control': 'algebra_control',
  'program': 'program',
}
MEMORIZATION = {name: name for name in ('copy', 'reverse', 'double')}

# "two and four memories, and two and four attention heads, a total memory size
# of 1024 and 2048 (divided across memories), a single pass of self attention
# per step and scalar memory gating"
RMCS = {
  f'rmc_{slots}_slots_{heads}_heads_{total}': {
    'name': 'relational_memory',
    'mem_slots': slots,
    'num_heads': heads,
    'head_size': total // slots // heads,
    'gate_style': 'memory',
  }
  for slots in (2, 4)
  for heads in (2, 4)
  for total in (1024, 2048)
}
# A two layer model, "1024 and 2048 units per layer".
LSTMS = {
  f'lstm_{size}': {'name': 'lstm', 'num_layers': 2, 'hidden_size': size}
  for size in (1024, 2048)
}
# "a total memory size of either 1024 or 2048 with 2, 4, 6, or 8 memory cells"
BANKS = {
  f'entnet_{cells}_cells_{total}': {
    'name': 'lstm_bank',
    'num_cells': cells,
    'total_size': total,
  }
  for cells in (2, 4, 6, 8)
  for total in (1024, 2048)
}


def _presets(
  tasks: dict[str, str], controller: str, suffix: str = '', **fields
) -> dict[str, dict]:
  """Every size of every core on these tasks."""
  dncs = {
    f'dnc_{size}': {
      'name': 'dnc',
      'memory_size': 80,
      'word_size': 64,
      'num_reads': 4,
      'num_writes': 1,
      'controller': controller,
      'num_layers': 2,
      'hidden_size': size,
    }
    for size in (128, 256, 512)
  }
  cores = RMCS | LSTMS | BANKS | dncs
  return {
    f'{column}{suffix}_{core}': PAPER
    | {'task': task, 'core': cores[core], **fields}
    for column, task in tasks.items()
    for core in cores
  }


TABLE_1_PROGRAMS = _presets(PROGRAMS, 'lstm')
TABLE_1_MEMORIZATION = _presets(MEMORIZATION, 'feed_forward', max_nesting=1)
FIGURE_8_HARD = _presets(PROGRAMS, 'lstm', '_hard', max_length=6, max_nesting=3)

# Minutes on two CPU cores: a small memory with unit gates. With memory gates it
# learns addition later; docs/results.md has both.
QUICK = PAPER | {
  'task': 'addition',
  'max_length': 2,
  'max_nesting': 1,
  'core': {
    'name': 'relational_memory',
    'mem_slots': 4,
    'num_heads': 2,
    'head_size': 32,
    'gate_style': 'unit',
  },
  'optimizer': PAPER['optimizer']
  | {
    'schedule': 'cosine',
    'hold_steps': 4000,
    'decay_steps': 2000,
    'floor': 1e-5,
  },
  'run': {'num_steps': 6000, 'updates_per_call': 50},
}

QUICK_MEMORIZATION = {
  task: QUICK | {'task': task, 'max_length': 5} for task in MEMORIZATION
}
# Cores with about as many parameters, or as large a state, as QUICK's.
QUICK_CORES = {
  'lstm': {'name': 'lstm', 'num_layers': 2, 'hidden_size': 128},
  'entnet': {'name': 'lstm_bank', 'num_cells': 4, 'total_size': 256},
  'dnc': {
    'name': 'dnc',
    'memory_size': 16,
    'word_size': 16,
    'num_reads': 2,
    'controller': 'feed_forward',
    'num_layers': 2,
    'hidden_size': 128,
  },
}
# Table 1 for a laptop: the RMC on each task, and all cores on one task.
QUICK_TABLE = {
  'quick': QUICK,
  **{f'quick_{task}': run for task, run in QUICK_MEMORIZATION.items()},
  **{
    f'quick_reverse_{name}': QUICK_MEMORIZATION['reverse'] | {'core': core}
    for name, core in QUICK_CORES.items()
  },
}

PRESETS = {
  **QUICK_TABLE,
  **TABLE_1_PROGRAMS,
  **FIGURE_8_HARD,
  **TABLE_1_MEMORIZATION,
}


def _runs(presets: dict[str, dict]) -> dict[str, dict]:
  return {name: {'preset': name} for name in presets}


SWEEPS = {
  'quick_table': _runs(QUICK_TABLE),
  'quick_seeds': {
    f'seed_{seed}': {'preset': 'quick', 'config.run.seed': seed}
    for seed in range(3)
  },
  # 6 tasks x 21 sizes of the four cores: 126 runs.
  'table_1': _runs(TABLE_1_PROGRAMS | TABLE_1_MEMORIZATION),
  # The lower row of figure 8; the upper is in table 1.
  'figure_8_hard': _runs(FIGURE_8_HARD),
}
