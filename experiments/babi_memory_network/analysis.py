"""Scores memory networks that choose statements: test errors, learning curves.

  python -m experiments.babi_memory_network.analysis \
      runs/babi_memory_network-quick

The same as `experiments.babi.analysis`, whose runs may be in the same table.
"""

import sys

from experiments.babi.analysis import report
from rmc_jax.analysis import runs

if __name__ == '__main__':
  sys.exit(runs.main(report, __doc__, sys.argv[1:]))
