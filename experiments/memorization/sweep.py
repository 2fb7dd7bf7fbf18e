"""The settings of copy, reverse and double: table 1's, and for a laptop."""

from experiments.learn_to_execute import sweep

TASKS = tuple(sweep.MEMORIZATION)

# Those of the sweep of learn_to_execute, by shorter names.
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
