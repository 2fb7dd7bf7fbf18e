"""Trains copy, reverse and double: Santoro et al. 2018, section 5.2, table 1.

The model reads an integer digit by digit and writes it again, backwards, or
twice. The paper, per character, at a length that it does not state:

           copy  reverse  double
  LSTM     99.8     99.7    99.7
  EntNet   91.8    100.0    62.3
  DNC     100.0    100.0   100.0
  RMC     100.0    100.0    99.8

  python -m experiments.memorization.train                # quick, minutes
  python -m experiments.memorization.train --preset=double_lstm_2048

Model, loss and evaluation are those of `experiments.learn_to_execute.train`.
"""

from experiments import command_line
from experiments.learn_to_execute.train import Config
from experiments.learn_to_execute.train import train
from experiments.memorization import sweep

if __name__ == '__main__':
  command_line.main(
      train,
      Config,
      sweep.PRESETS,
      experiment='memorization',
      preset='quick',
  )
