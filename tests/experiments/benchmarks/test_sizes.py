"""Tests experiments/benchmarks/sizes.py against counts worked out elsewhere."""

import pytest

from experiments.benchmarks import agreement
from experiments.benchmarks.sizes import SIZES


@pytest.mark.parametrize(
  ('name', 'parameters'),
  [
    # 8 slots of 256 and 16 of 128, as TensorFlow counted them; 2500 units of
    # the language model by hand: 18.8 M + 31.3 M + 25.0 M + 1.3 M, and biases.
    ('nth_farthest', 605_184),
    ('nth_farthest_16x128', 155_136),
    ('nth_farthest_1x2048', 37_871_616),
  ],
)
def test_parameters(name, parameters):
  weights = agreement.make_arrays(SIZES[name])['weights']
  assert sum(value.size for value in weights.values()) == parameters


def test_arguments_and_state():
  for size in SIZES.values():
    arguments = size.arguments()
    width = arguments['head_size'] * arguments['num_heads']
    assert size.state_size == arguments['mem_slots'] * width
  assert SIZES['language_model_paper'].state_size == 2500
  assert SIZES['agent'].state_size == SIZES['steps_512'].state_size == 1024
