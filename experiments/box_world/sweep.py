"""Presets and sweeps of BoxWorld: paper, curriculum, far2025, quick."""

# 4 slots of 4 heads x 64 = 1,024 units; one gate per slot.
MEMORY = {
  'name': 'relational_memory',
  'mem_slots': 4,
  'head_size': 64,
  'num_heads': 4,
  'gate_style': 'memory',
}
# Santoro et al. 2018, appendix A.3; * marks what the paper leaves open.
PAPER = {
  'core': MEMORY,
  'agent': {'unroll_length': 40, 'discount': 0.99, 'entropy_cost': 0.005},
  'batch_size': 32,
  'optimizer': {
    'name': 'rmsprop',  # * as the next three, of scalable_agent
    'learning_rate': 2e-4,  # from 1e-5 to 2e-4 in the paper
    'rmsprop_decay': 0.99,
    'eps': 0.1,
    'schedule': 'linear',  # * to 0
    'decay_steps': 781_250,
    'clip_global_norm': 40.0,  # * as in torchbeast; scalable_agent has none
  },
  # 10^9 steps
  'run': {
    'num_steps': 781_250,
    'updates_per_call': 10,
    'log_every': 1000,
    'eval_every': 12_500,
    'checkpoint_every': 12_500,
  },
}

# One box, no distractors: minutes on two CPU cores. See docs/results.md.
QUICK = {
  'max_solution': (1,),
  'max_distractors': 0,
  'channels': (16,),
  'core': {'name': 'lstm', 'hidden_size': 128},
  # Not the paper's: a lambda below 1 lowers the variance of the targets, and a
  # discount of 0.95 favours short ways.
  'agent': {'unroll_length': 20, 'discount': 0.95, 'trace_decay': 0.7},
  'batch_size': 64,
  'optimizer': {
    'name': 'adam',
    'learning_rate': 1e-3,
    'clip_global_norm': 40.0,
  },
  'eval_episodes': 400,
  'run': {
    'num_steps': 6000,
    'updates_per_call': 20,
    'log_every': 100,
    'eval_every': 500,
    'checkpoint_every': 1000,
  },
}
CONV_LSTM = {'name': 'conv_lstm', 'output_channels': 64, 'kernel_size': 2}

# After boxworld_drc33 of AlignmentResearch/train-learned-planner, with updates
# on 32 environments x 20 steps, an eighth of its batch. Its losses are means
# over these steps, ours sums, so the bound of the gradient and the epsilon of
# Adam are multiplied by them. Its value loss has no factor of a half.
# Departures: all of a batch is new, no penalties on weights and logits, a ReLU
# and coordinates after the last convolution, and the cell of `DRC`.
_STEPS = 32 * 20
FAR2025 = {
  'rules': 'far2025',
  'view': 'full',
  'min_solution': 3,
  'max_solution': (3,),
  'min_distractors': 1,
  'max_distractors': 1,
  'channels': (32, 32),
  'kernel_size': 3,
  'core': {
    'name': 'drc',
    'rows': 14,
    'columns': 14,
    'output_channels': 32,
    'kernel_size': 3,
    'num_layers': 3,
    'num_repeats': 3,
  },
  'hidden_sizes': (256,),
  'agent': {
    'unroll_length': 20,
    'discount': 0.97,
    'trace_decay': 0.5,
    'entropy_cost': 0.01,
    'baseline_cost': 0.5,
  },
  'batch_size': 32,
  'optimizer': {
    'name': 'adam',
    'learning_rate': 4e-4,
    'b2': 0.99,
    'eps': 1.5625e-7 * _STEPS,
    'schedule': 'linear',
    'decay_steps': 312_500,
    'floor': 4e-6,
    'clip_global_norm': 2.5e-4 * _STEPS,
  },
  # 2 * 10^8 steps
  'run': {
    'num_steps': 312_500,
    'updates_per_call': 10,
    'log_every': 1000,
    'eval_every': 12_500,
    'checkpoint_every': 12_500,
  },
}

PRESETS = {
  'quick': QUICK,
  'quick_rmc': QUICK | {'core': MEMORY | {'head_size': 16}},
  'quick_conv_lstm': QUICK | {'core': CONV_LSTM | {'output_channels': 16}},
  # The next stage begins when an evaluation solves 90 % of the levels.
  'curriculum': QUICK
  | {
    'max_solution': (1, 2, 4),
    'eval_episodes': 1000,
    'run': QUICK['run'] | {'num_steps': 400_000},
  },
  'paper': PAPER,
  'paper_conv_lstm': PAPER | {'core': CONV_LSTM},
  # Not in the paper: 504,606 parameters, where the relational memory's agent
  # has 505,805.
  'paper_conv_lstm_large': PAPER
  | {'core': CONV_LSTM | {'output_channels': 161}},
  'far2025': FAR2025,
}
# Sweeps of the launchers (--sweep): name -> run -> the trainer's flags.
SWEEPS = {
  'paper_cores': {
    name: {'preset': name}
    for name in ('paper', 'paper_conv_lstm', 'paper_conv_lstm_large')
  },
  'quick_cores': {
    f'{name}_seed_{seed}': {'preset': name, 'config.run.seed': seed}
    for name in ('quick', 'quick_rmc', 'quick_conv_lstm')
    for seed in range(3)
  },
}
