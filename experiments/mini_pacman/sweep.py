"""Presets and sweeps of Mini Pacman: figure 10, quick."""

from experiments.box_world.sweep import MEMORY
from experiments.box_world.sweep import PAPER

# Agent, memory, optimiser and length of PAPER are those of BoxWorld: the paper
# gives none for this game.
# * As many units as the four slots together.
LSTM = {'name': 'lstm', 'hidden_size': 1024}
# * The whole maze, with the convolutions of the public code of this game,
# coordinates in place of its linear layer.
FULL = {
  'view': 'full',
  'channels': (16, 16),
  'kernel_size': 3,
  'strides': (1, 2),
}

# Minutes on two CPU cores. See docs/results.md.
QUICK = {
  'channels': (16,),
  'strides': (1,),
  'core': MEMORY | {'head_size': 16},
  'agent': {'unroll_length': 20, 'discount': 0.97, 'reward_scale': 0.1},
  'batch_size': 64,
  'optimizer': {
    'name': 'adam',
    'learning_rate': 3e-4,
    'clip_global_norm': 40.0,
  },
  'run': {
    'num_steps': 4000,
    'updates_per_call': 20,
    'log_every': 100,
    'eval_every': 500,
    'checkpoint_every': 1000,
  },
}

PRESETS = {
  'quick': QUICK,
  'quick_lstm': QUICK | {'core': {'name': 'lstm', 'hidden_size': 128}},
  'quick_full': QUICK | FULL | {'channels': (8, 8)},
  'quick_full_lstm': QUICK
  | FULL
  | {'channels': (8, 8), 'core': {'name': 'lstm', 'hidden_size': 128}},
  'paper': PAPER,
  'paper_lstm': PAPER | {'core': LSTM},
  'paper_full': PAPER | FULL,
  'paper_full_lstm': PAPER | FULL | {'core': LSTM},
}

# Sweeps of the launchers (--sweep): name -> run -> the trainer's flags.
SWEEPS = {
  'figure_10': {
    name: {'preset': name}
    for name in ('paper', 'paper_lstm', 'paper_full', 'paper_full_lstm')
  },
  # Three seeds of both cores, with the viewport and with the whole maze.
  'quick_cores': {
    f'{name}_seed_{seed}': {'preset': name, 'config.run.seed': seed}
    for name in ('quick', 'quick_lstm', 'quick_full', 'quick_full_lstm')
    for seed in range(3)
  },
}
