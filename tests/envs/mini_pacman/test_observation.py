"""Tests rmc_jax/envs/mini_pacman/observation.py."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rmc_jax.envs.mini_pacman import make_params
from rmc_jax.envs.mini_pacman import MiniPacman
from rmc_jax.envs.mini_pacman.presets import PRESETS
from tests.envs.mini_pacman import games
from tests.reference import mini_pacman as reference


@pytest.mark.parametrize('preset', PRESETS)
def test_images_equal_those_of_the_reference(preset):
  params = make_params(preset, max_steps=77)
  rules = dataclasses.asdict(params)
  states = jax.vmap(games.random_state)(jax.random.split(jax.random.key(5), 40))
  images = {
    (view, pixels): jax.vmap(MiniPacman(view, pixels).observe, (0, None))(
      states, params
    )
    for view in ('viewport', 'full')
    for pixels in ('rgb', 'symbolic')
  }
  for (view, pixels), image in images.items():
    shape = MiniPacman(view, pixels).observation_spec.shape
    assert image.shape == (40, *shape)
    assert image.dtype == jnp.float32
  for game in range(40):
    state = games.to_reference(games.row(jax.device_get(states), game))
    full = np.array(reference.render(state, rules))
    np.testing.assert_allclose(images['full', 'rgb'][game], full, atol=1e-6)
    row, column = state['player']
    for pixels in ('rgb', 'symbolic'):
      whole = np.asarray(images['full', pixels][game])
      wall = np.ones(3) if pixels == 'rgb' else np.eye(6)[0]
      bordered = np.broadcast_to(wall, (19, 23, len(wall))).copy()
      bordered[2:-2, 2:-2] = whole
      np.testing.assert_array_equal(
        images['viewport', pixels][game],
        bordered[row : row + 5, column : column + 5],
      )
    planes = np.asarray(images['full', 'symbolic'][game])
    places = [
      [each['place'] for each in state['ghosts'] if each['alive']],
      [each['place'] for each in state['pills'] if each['there']],
    ]
    power = state['power'] / 20
    for place in np.ndindex(15, 19):
      ghost = place in places[0]
      expected = [
        reference.is_wall(place),
        place in state['food'],
        place == state['player'],
        ghost * (1 - power),
        ghost * power,
        place in places[1],
      ]
      np.testing.assert_allclose(planes[place], expected, atol=1e-6)


def test_bad_views_are_refused():
  with pytest.raises(ValueError, match='view must be one of viewport, full'):
    MiniPacman(view='window')
  with pytest.raises(ValueError, match='pixels must be one of rgb, symbolic'):
    MiniPacman(pixels='ascii')
