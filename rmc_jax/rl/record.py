"""Records an episode as images, with the attention of the memory."""

import pathlib
from typing import Any

import jax
import numpy as np

from rmc_jax.envs import render
from rmc_jax.envs.environment import Game
from rmc_jax.rl.evaluate import make_player
from rmc_jax.rl.network import Network
from rmc_jax.types import Array
from rmc_jax.types import ArrayTree

_GAP = 16  # pixels between the game and the attention


def save_episode(path: pathlib.Path, *arguments: Any, **options: Any) -> None:
  """Writes a GIF of `record_episode`, whose arguments follow `path`."""
  path.parent.mkdir(parents=True, exist_ok=True)
  render.save_gif(path, record_episode(*arguments, **options), rate=5)


def record_episode(
  network: Network,
  params: ArrayTree,
  env: Game,
  env_params: Any,
  key: Array,
  *,
  draw_attention: bool,
  greedy: bool = False,
  max_frames: int = 500,
) -> list[np.ndarray]:
  """Plays an episode; returns an image of each step, [rows, columns, 3] uint8.

  Args:
    network: the agent.
    params: its parameters.
    env: a game without automatic resets.
    env_params: its parameters.
    key: of level and actions; consumed.
    draw_attention: whether to draw, to the right of the game, the attention
      weights of the step: a row for each memory slot, a column for each slot
      and then for the inputs. Means over heads and blocks; darker is more, the
      darkest blue is 1. Needs an `AttendingCore`.
    greedy: whether to take the most probable action.
    max_frames: steps after which the recording ends.
  """
  start, step = make_player(network, params, env, env_params, greedy)
  step, trace = jax.jit(step), jax.jit(network.trace)
  level_key, key = jax.random.split(key)
  player, frames = jax.jit(start)(level_key[None]), []
  while len(frames) < max_frames:
    game = jax.tree.map(lambda leaf: leaf[0], player.game.game)
    frame = render.image(env, game, env_params)
    if draw_attention:
      inputs = jax.tree.map(lambda x: x[None], player.inputs)
      (_, steps), _ = trace(params, inputs, player.core)
      # Means over T = 1, B = 1, L and H.
      weights = np.asarray(steps.attention).mean((0, 1, 2, 3))  # [N, N + I]
      frame = _hstack(frame, attention_image(weights, len(frame)))
    frames.append(frame)
    if player.ended[0]:
      break
    key, step_key = jax.random.split(key)
    player = step(player, step_key[None])
  return frames


def attention_image(weights: np.ndarray, height: int) -> np.ndarray:
  """Returns an image [rows, columns, 3] uint8 of attention weights.

  Args:
    weights: [N, N + I] in [0, 1]; a gap separates the inputs.
    height: of the image in pixels, if the slots fit into it.
  """
  slots, columns = weights.shape
  cell = max(1, min(height // slots, 2 * height // columns))
  blue = np.array([8, 48, 107])
  colours = 255 - weights[..., None] * (255 - blue)
  image = np.round(colours).astype(np.uint8).repeat(cell, 0).repeat(cell, 1)
  memory, inputs = np.split(image, [cell * slots], axis=1)
  return _hstack(memory, inputs, gap=max(1, cell // 4))


def _hstack(left: np.ndarray, right: np.ndarray, gap: int = _GAP) -> np.ndarray:
  """Places two images side by side on grey, the shorter one centred."""
  height = max(len(left), len(right))

  def centred(image):
    above = (height - len(image)) // 2
    below = height - len(image) - above
    return np.pad(image, ((above, below), (0, 0), (0, 0)), constant_values=128)

  space = np.full((height, gap, 3), 128, np.uint8)
  return np.concatenate([centred(left), space, centred(right)], axis=1)
