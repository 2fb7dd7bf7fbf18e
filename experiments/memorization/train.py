"""Trains copy, reverse and double: Santoro et al. 2018, section 5.2, table 1.

The model reads an integer digit by digit and writes it again, backwards, or
twice. The paper's accuracy per character, at a length that it does not state;
`learn_to_execute.analysis.TABLE_1` has the other cores:

         copy  reverse  double
  LSTM   99.8     99.7    99.7
  RMC   100.0    100.0    99.8

  python -m experiments.memorization.train                # quick, minutes
  python -m experiments.memorization.train --preset=double_lstm_2048

Model, loss and evaluation are those of `experiments.learn_to_execute.train`.
"""

import dataclasses

from experiments import command_line
from experiments.learn_to_execute import train as learn_to_execute
from experiments.memorization import sweep


@dataclasses.dataclass
class Config(learn_to_execute.Config):
  """One run of a memorization task."""

  task: str = 'reverse'  # 'copy', 'double'
  max_nesting: int = 1

  def validate(self) -> None:
    super().validate()
    if not learn_to_execute.make_task(self).is_memory:
      raise ValueError(
        f'task must be one of {", ".join(sweep.TASKS)}; '
        f'experiments.learn_to_execute has the others. Got: {self.task!r}.'
      )


if __name__ == '__main__':
  command_line.main(
    learn_to_execute.train, Config, sweep.PRESETS, 'memorization'
  )
