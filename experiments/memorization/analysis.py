"""Did it work? Scores of runs, table 1 beside the paper's, and their curves.

  python -m experiments.memorization.analysis runs/memorization-quick_table/*

See `experiments.learn_to_execute.analysis`, of which this is the same.
"""

import sys

from experiments.learn_to_execute.analysis import main

if __name__ == '__main__':
  sys.exit(main(sys.argv[1:], __doc__))
