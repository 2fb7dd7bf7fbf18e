"""Presets and sweeps: both ways of training, on a few tasks and on all."""

from experiments.babi.sweep import run_of

FACTS = {'supervision': 'facts', 'run': run_of(30, 1000)}
HEURISTIC = {'supervision': 'heuristic', 'run': run_of(30, 1000)}
_10K = {'version': 'en-10k', 'run': run_of(10, 10_000)}

PRESETS = {
  'quick': FACTS | {'tasks': (1, 2, 6, 15, 16, 20), 'restarts': 2},
  'facts': FACTS,
  'heuristic': HEURISTIC,
  'facts_10k': FACTS | _10K,
  'heuristic_10k': HEURISTIC | _10K,
}

SWEEPS = {
  'supervision': {name: {'preset': name} for name in ('facts', 'heuristic')},
  'supervision_10k': {
    name: {'preset': name} for name in ('facts_10k', 'heuristic_10k')
  },
}
