"""Tests rmc_jax/envs/render.py."""

import jax
import numpy as np
from PIL import Image
import pytest

from rmc_jax.envs import make
from rmc_jax.envs import render


@pytest.mark.parametrize(
  'name, size', [('mini_pacman', (15, 19)), ('box_world', (14, 14))]
)
def test_a_picture_shows_the_whole_game(name, size):
  env, params = make(name)
  state = env.reset(jax.random.key(0), params)
  picture = render.image(env, state, params, scale=3)
  assert picture.shape == (3 * size[0], 3 * size[1], 3)
  assert picture.dtype == np.uint8
  whole, _ = make(name, view='full')
  pixels = np.round(255 * whole.observe(state, params))
  for row in range(3):
    for column in range(3):
      np.testing.assert_array_equal(picture[row::3, column::3], pixels)


def test_an_animation_has_its_frames_in_order(tmp_path):
  frames = [np.full((4, 6, 3), value, np.uint8) for value in (10, 90, 200)]
  render.save_gif(tmp_path / 'game.gif', frames, rate=4)
  with Image.open(tmp_path / 'game.gif') as gif:
    assert (gif.n_frames, gif.size) == (3, (6, 4))
    assert gif.info['loop'] == 0
    for index, frame in enumerate(frames):
      gif.seek(index)
      assert gif.info['duration'] == 250
      np.testing.assert_array_equal(gif.convert('RGB'), frame)


def test_wrong_arguments_are_refused(tmp_path):
  env, params = make('box_world')
  state = env.reset(jax.random.key(0), params)
  with pytest.raises(ValueError, match='scale must be at least 1. Got: 0'):
    render.image(env, state, params, scale=0)
  with pytest.raises(ValueError, match='frames must contain at least one'):
    render.save_gif(tmp_path / 'game.gif', [])
  frame = np.zeros((2, 2, 3), np.uint8)
  with pytest.raises(ValueError, match='rate must be above 0 and at most 50'):
    render.save_gif(tmp_path / 'game.gif', [frame], rate=51)
