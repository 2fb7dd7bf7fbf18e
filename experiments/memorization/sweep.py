"""Presets and sweeps of copy, reverse and double."""

from experiments.learn_to_execute import sweep

TASKS = tuple(sweep.MEMORIZATION)

# The memorization runs of learn_to_execute's quick table.
QUICK = {
  'quick': sweep.QUICK_TABLE['quick_reverse'],
  **{
    name: run
    for name, run in sweep.QUICK_TABLE.items()
    if run['task'] in TASKS and name != 'quick_reverse'
  },
}
PRESETS = QUICK | sweep.TABLE_1_MEMORIZATION

SWEEPS = {
  'quick_table': {name: {'preset': name} for name in QUICK},
  'table_1': {name: {'preset': name} for name in sweep.TABLE_1_MEMORIZATION},
}
