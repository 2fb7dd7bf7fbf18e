"""Tests rmc_jax/rl/record.py."""

import jax
import numpy as np
from PIL import Image
import pytest

from rmc_jax import envs
from rmc_jax.envs import render
from rmc_jax.rl.record import attention_image
from rmc_jax.rl.record import record_episode
from rmc_jax.rl.record import save_episode
from tests.rl.agents import make_network
from tests.rl.agents import random_params

OPTIONS = {'channels': (3,), 'coordinates': 'view'}


def record(core='relational_memory', max_steps=6, **options):
  env, params = envs.make('mini_pacman', max_steps=max_steps)
  network = make_network(env, core, **OPTIONS)
  weights = random_params(network, scale=0.1)
  options = {'draw_attention': core != 'lstm'} | options
  key = jax.random.key(3)
  return (
    env,
    params,
    record_episode(network, weights, env, params, key, **options),
  )


def test_frames_show_the_game_from_first_to_last_state():
  env, params, frames = record('lstm')
  level_key, _ = jax.random.split(jax.random.key(3))
  # The player splits the key of a level no further.
  first = env.reset(level_key, params)
  np.testing.assert_array_equal(frames[0], render.image(env, first, params))
  assert 2 <= len(frames) <= 7
  assert all((a != b).any() for a, b in zip(frames, frames[1:], strict=False))


def test_attention_is_beside_the_game():
  _, _, frames = record()
  _, _, plain = record(draw_attention=False)
  width = plain[0].shape[1]
  for frame, game in zip(frames, plain, strict=True):
    np.testing.assert_array_equal(frame[:, :width], game)
    assert frame.shape[1] > width
  beside = [frame[:, width:] for frame in frames]
  assert any((beside[0] != other).any() for other in beside[1:])


def test_recording_ends_after_the_largest_number_of_frames():
  assert len(record('lstm', max_steps=50, max_frames=3)[2]) == 3


def test_episode_is_saved(tmp_path):
  env, params = envs.make('mini_pacman', max_steps=5)
  network = make_network(env, **OPTIONS)
  path = tmp_path / 'figures' / 'episode.gif'
  save_episode(
    path,
    network,
    random_params(network),
    env,
    params,
    jax.random.key(0),
    draw_attention=False,
  )
  with Image.open(path) as gif:
    assert gif.n_frames > 1


@pytest.mark.parametrize('height', [50, 7])
def test_attention_is_darker_where_it_is_larger(height):
  weights = np.array([[0.0, 0.5, 1.0], [0.25, 0.25, 0.5]])  # N = 2, I = 1
  image = attention_image(weights, height)
  cell = height // 2
  assert image.shape == (2 * cell, 3 * cell + max(1, cell // 4), 3)
  shades = image[[0, cell]][:, [0, cell, -1], 0]
  np.testing.assert_array_equal(
    shades, np.round(255 - weights * (255 - 8)).astype(int)
  )
