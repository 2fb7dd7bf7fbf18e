"""Tests experiments/benchmarks/sizes.py against independent counts."""

import pytest

from experiments.benchmarks import agreement
from experiments.benchmarks.sizes import SIZES


@pytest.mark.parametrize(
  ('name', 'parameters'),
  [
    # As TensorFlow counts them.
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


def test_batch_depends_on_the_device():
  size = SIZES['nth_farthest']
  assert (size.on('cpu').batch, size.on('gpu').batch) == (200, 1600)
  assert SIZES['agent'].on('gpu') == SIZES['agent']
