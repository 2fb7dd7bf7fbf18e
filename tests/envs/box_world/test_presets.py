"""Tests rmc_jax/envs/box_world/presets.py and Params."""

import math

import pytest

from rmc_jax.envs.box_world import make_params


def test_presets_have_the_published_ranges():
  paper, pycolab = make_params(), make_params('pycolab')
  assert (paper.min_solution, paper.max_solution) == (1, 5)
  assert (paper.min_distractors, paper.max_distractors) == (0, 5)
  assert (pycolab.min_solution, pycolab.max_solution) == (1, 4)
  assert (pycolab.min_distractors, pycolab.max_distractors) == (0, 4)
  far2025 = make_params('far2025')
  assert (far2025.min_solution, far2025.max_solution) == (3, 3)
  assert (far2025.step_reward, far2025.key_reward) == (-0.1, 1)
  assert far2025.max_steps == 120
  for params in (paper, pycolab):
    assert (params.gem_reward, params.solution_reward) == (10, 1)
    assert (params.distractor_reward, params.step_reward) == (-1, 0)


@pytest.mark.parametrize(
  'arguments, message',
  [
    (
      {'preset': 'far'},
      "preset must be one of paper, pycolab, far2025. Got: 'far'",
    ),
    ({'min_solution': 0}, 'min_solution must be at least 1. Got: 0'),
    ({'min_solution': 6}, 'min_solution must be at most 5. Got: 6'),
    ({'max_solution': 6}, 'max_solution must be between min_solution and 5'),
    ({'min_solution': 4, 'max_solution': 3}, 'max_solution must be between'),
    ({'branch_length': 2}, 'branch_length must be at most 5 divided by .*, 5'),
    (
      {'preset': 'far2025', 'branch_length': 13},
      'branch_length must be at most 12 divided by max_distractors, 1,',
    ),
    ({'min_distractors': -1}, 'min_distractors must be at least 0. Got: -1'),
    ({'max_distractors': 6}, 'max_distractors must be between .* Got: 6'),
    ({'branch_length': 0}, 'branch_length must be at least 1. Got: 0'),
    (
      {'distractor_boxes': 4},
      'distractor_boxes must be at least max_distractors .*, 5. Got: 4',
    ),
    ({'variant': 'dm'}, "variant must be one of pycolab, far2025. Got: 'dm'"),
    ({'max_steps': 0}, 'max_steps must be at least 1. Got: 0'),
    ({'gem_reward': math.nan}, 'gem_reward must be finite. Got: nan'),
  ],
)
def test_bad_rules_are_refused(arguments, message):
  with pytest.raises(ValueError, match=message):
    make_params(**arguments)


def test_numbers_of_boxes_and_steps_must_be_integers():
  with pytest.raises(TypeError, match='max_solution must be an integer'):
    make_params(max_solution=2.5)
  with pytest.raises(TypeError, match="max_steps must be an integer. Got: 't'"):
    make_params(max_steps='t')


def test_states_have_room_for_long_distractors():
  assert make_params().distractor_boxes == 5
  params = make_params(max_solution=3, max_distractors=1, branch_length=7)
  assert params.distractor_boxes == 7
