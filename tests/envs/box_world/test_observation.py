"""Tests rmc_jax/envs/box_world/observation.py against the reference."""

import jax
import numpy as np
import pytest

from rmc_jax.envs.box_world import BoxWorld
from rmc_jax.envs.box_world import make_params
from tests.envs.box_world import games
from tests.reference import box_world as reference

GREY = {'border': 0.0, 'background': 0.8, 'player': 0.5, 'gem': 0.999}
CODES = {'gem': 20, 'player': 21, 'background': 22, 'border': 23}


def test_images_equal_those_of_the_reference():
  params = make_params(max_solution=2)
  states, *_ = games.play(jax.random.key(1), params, 40, 120)
  assert (states.held[-1] >= 0).any()
  last = games.row(states, -1)
  images = {
    (view, pixels): jax.vmap(BoxWorld(view, pixels).observe, (0, None))(
      last, params
    )
    for view in ('viewport', 'full')
    for pixels in ('rgb', 'symbolic')
  }
  for (view, pixels), image in images.items():
    assert image.shape == (40, *BoxWorld(view, pixels).observation_spec.shape)
    assert image.dtype == ('float32' if pixels == 'rgb' else 'int32')
  for game in range(40):
    level = games.to_reference(games.row(last, game))
    names = reference.render(level)
    held = 'border' if level['held'] is None else level['held']
    codes = np.array([[CODES.get(name, name) for name in r] for r in names])
    room = np.pad(codes.astype(int), 2, constant_values=CODES['border'])
    row, column = level['player']
    window = room[row : row + 5, column : column + 5]
    assert window[2, 2] == CODES['player']
    held_code = CODES.get(held, held)
    np.testing.assert_array_equal(
      images['viewport', 'symbolic'][game],
      np.stack([window, np.full((5, 5), held_code)], -1),
    )
    codes = codes.astype(int)
    codes[0, 0] = held_code
    np.testing.assert_array_equal(
      images['full', 'symbolic'][game, ..., 0], codes
    )
    np.testing.assert_allclose(
      images['full', 'rgb'][game], paint(codes.tolist()), atol=1e-6
    )
    np.testing.assert_allclose(
      images['viewport', 'rgb'][game],
      np.concatenate(
        [paint(window.tolist()), paint([[held_code] * 5] * 5)], -1
      ),
      atol=1e-6,
    )


def paint(codes):
  palette = {code: [GREY[name]] * 3 for name, code in CODES.items()}
  return np.array([[palette.get(c) or hue(c) for c in row] for row in codes])


def hue(colour):
  """Hues 18 degrees apart, of saturation 0.5 and value 0.7."""
  angle = 18 * colour / 60
  rising = 0.35 * (1 - abs(angle % 2 - 1))
  sector = int(angle)
  rgb = [0.35, 0.35, 0.35]
  first, second = [(0, 1), (1, 0), (1, 2), (2, 1), (2, 0), (0, 2)][sector]
  rgb[first], rgb[second] = 0.7, 0.35 + rising
  return rgb


def test_far2025_has_colours_of_its_own():
  params = make_params('far2025')
  states, *_ = games.play(jax.random.key(1), params, 200, 60)
  last = games.row(states, -1)
  codes, image = (
    np.asarray(
      jax.vmap(BoxWorld('full', pixels).observe, (0, None))(last, params)
    )
    for pixels in ('symbolic', 'rgb')
  )
  for code, colour in {
    0: (0, 0, 117),
    1: (230, 190, 255),
    10: (60, 180, 75),
    18: (70, 153, 144),
    CODES['gem']: (255, 255, 255),
    CODES['player']: (128, 128, 128),
    CODES['background']: (220, 220, 220),
    CODES['border']: (0, 0, 0),
  }.items():
    found = image[codes[..., 0] == code]
    assert len(found) > 0
    np.testing.assert_allclose(255 * found, [colour] * len(found), atol=1e-3)
  # The corner shows the key that is held.
  held = np.where(last.held < 0, CODES['border'], last.held)
  np.testing.assert_array_equal(codes[:, 0, 0, 0], held)
  assert (last.held >= 0).any()


def test_hues_are_the_published_ones():
  published = [(0.70, 0.35, 0.35), (0.70, 0.455, 0.35), (0.70, 0.56, 0.35)]
  np.testing.assert_allclose([hue(i) for i in range(3)], published, atol=1e-6)


@pytest.mark.parametrize(
  'view, size, channels', [('viewport', 5, 6), ('full', 14, 3)]
)
def test_coordinates_are_those_of_the_room(view, size, channels):
  params = make_params(max_solution=1)
  env = BoxWorld(view, coordinates=True)
  state = env.reset(jax.random.key(2), params)
  image = env.observe(state, params)
  assert image.shape == env.observation_spec.shape == (size, size, channels + 2)
  np.testing.assert_array_equal(
    image[..., :channels], BoxWorld(view).observe(state, params)
  )
  row, column = state.player.tolist()
  assert row != column
  top, left = (row - 2, column - 2) if view == 'viewport' else (0, 0)
  for i in range(size):
    for j in range(size):
      # The 12 x 12 cells of the room are 1 to 12; a viewport shows -1 to 14.
      expected = (top + i + 1) / 15, (left + j + 1) / 15
      np.testing.assert_allclose(image[i, j, channels:], expected, atol=1e-6)


def test_bad_views_are_refused():
  with pytest.raises(ValueError, match='view must be one of viewport, full'):
    BoxWorld(view='window')
  with pytest.raises(ValueError, match='pixels must be one of rgb, symbolic'):
    BoxWorld(pixels='ascii')
  with pytest.raises(
    ValueError, match="coordinates must be False .*'symbolic'"
  ):
    BoxWorld(pixels='symbolic', coordinates=True)
