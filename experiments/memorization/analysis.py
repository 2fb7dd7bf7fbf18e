"""Scores memorization runs: table 1, learning curves.

  python -m experiments.memorization.analysis runs/memorization-quick_table/*

The same as `experiments.learn_to_execute.analysis`.
"""

import sys

from experiments.learn_to_execute.analysis import report
from rmc_jax.analysis import runs

if __name__ == '__main__':
  sys.exit(runs.main(report, __doc__, sys.argv[1:]))
