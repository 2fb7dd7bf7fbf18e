"""Presets and sweeps: the columns of table 1, and a size for a laptop."""

BATCH_SIZE = 32


def run_of(epochs: int, questions: int) -> dict:
  """A run of so many epochs of nine tenths of the questions."""
  epoch = (questions - questions // 10) // BATCH_SIZE  # updates
  return {
    'num_steps': epochs * epoch,
    'log_every': epoch,
    'eval_every': epoch,
    'checkpoint_every': 10 * epoch,
  }


# Sukhbaatar et al. 2015, section 4.2 and table 1, task by task.
BOW = {
  'encoding': 'bow',
  'random_noise': 0.0,
  'linear_start': 'none',
  'run': run_of(100, 1000),
}
PE = BOW | {'encoding': 'position'}
# The authors' code starts with 20 epochs without softmax.
PE_LS = PE | {'linear_start': 'fixed', 'run': run_of(120, 1000)}
PE_LS_RN = PE_LS | {'random_noise': 0.1}
# Footnote 4. Tying and width are inferred from the errors that Henaff et al.
# 2017 list for the paper's best model, see docs/babi.md.
PE_LS_RN_LW_RELU = PE_LS_RN | {
  'tying': 'layerwise',
  'embedding_size': 100,
  'relu': True,
}
# Joint training: a start of 30 epochs, then 60 with a rate halved every 15.
JOINT = PE_LS | {
  'joint': True,
  'embedding_size': 50,
  'linear_epochs': 30,
  'halve_epochs': 15,
  'run': run_of(90, 20_000),
}

PER_TASK_COLUMNS = {
  'bow': BOW,
  'pe': PE,
  'pe_ls': PE_LS,
  'pe_ls_rn': PE_LS_RN,
  'pe_ls_rn_lw_relu': PE_LS_RN_LW_RELU,
}
JOINT_COLUMNS = {
  'joint_1_hop': JOINT | {'num_hops': 1},
  'joint_2_hops': JOINT | {'num_hops': 2},
  'joint_3_hops': JOINT,
  'joint_ls_rn': JOINT | {'random_noise': 0.1},
  'joint_layerwise': JOINT | {'tying': 'layerwise'},
}


def _ten_thousand(preset: dict) -> dict:
  """Returns the preset with 10,000 training questions per task.

  Joint training is shorter, as in the paper: 20 epochs with a rate halved every
  5, here after 10 without softmax.
  """
  tasks = 20
  epochs = preset['run']['num_steps'] // preset['run']['eval_every']
  changes: dict = {'version': 'en-10k', 'run': run_of(epochs, 10_000)}
  if preset.get('joint'):
    changes |= {
      'linear_epochs': 10,
      'halve_epochs': 5,
      'run': run_of(30, tasks * 10_000),
    }
  return preset | changes


PRESETS = {
  'quick': PE_LS_RN
  | {
    'tasks': (1, 2, 6, 15, 16, 20),
    'restarts': 4,  # 24 members divide over 2, 4 and 8 devices
    'run': run_of(60, 1000),
    'halve_epochs': 10,
  },
  **PER_TASK_COLUMNS,
  **JOINT_COLUMNS,
  **{
    f'{name}_10k': _ten_thousand(preset)
    for name, preset in (PER_TASK_COLUMNS | JOINT_COLUMNS).items()
  },
}

SWEEPS = {
  'table_1_per_task': {name: {'preset': name} for name in PER_TASK_COLUMNS},
  'table_1_joint': {name: {'preset': name} for name in JOINT_COLUMNS},
  'table_1_10k_per_task': {
    f'{name}_10k': {'preset': f'{name}_10k'} for name in PER_TASK_COLUMNS
  },
  'table_1_10k_joint': {
    f'{name}_10k': {'preset': f'{name}_10k'} for name in JOINT_COLUMNS
  },
}
