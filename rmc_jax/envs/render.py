"""Images and animations of games, for people."""

from collections.abc import Sequence
import dataclasses
import functools
import pathlib
from typing import Any

import jax
import numpy as np
from PIL import Image

from rmc_jax.checks import positive_int
from rmc_jax.envs.environment import Game

MAX_RATE = 50  # Programs show faster GIFs more slowly.


def image(env: Game, state: Any, params: Any, scale: int = 16) -> np.ndarray:
  """Returns an image of the whole game, whatever the view of `env`.

  Args:
    env: the game.
    state: the state of one game.
    params: its parameters.
    scale: height and width of a cell in pixels.

  Returns:
    [scale * rows, scale * columns, 3] uint8.
  """
  positive_int('scale', scale)
  whole = dataclasses.replace(env, view='full', pixels='rgb')
  pixels = np.asarray(observe(whole, state, params))[..., :3]
  pixels = np.round(255 * pixels).astype(np.uint8)
  return pixels.repeat(scale, 0).repeat(scale, 1)


def save_gif(
  path: str | pathlib.Path, frames: Sequence[np.ndarray], *, rate: float = 10.0
) -> None:
  """Writes an animation that repeats for ever.

  Args:
    path: the file to write; its folder must exist.
    frames: images of equal size, as `image` returns them.
    rate: frames per second, at most MAX_RATE.
  """
  if len(frames) == 0:
    raise ValueError('frames must contain at least one image. Got: none.')
  if not 0 < rate <= MAX_RATE:
    raise ValueError(
      f'rate must be above 0 and at most {MAX_RATE}. Got: {rate}.'
    )
  first, *others = [Image.fromarray(frame) for frame in frames]
  first.save(
    path,
    format='GIF',
    save_all=True,
    append_images=others,
    duration=round(1000 / rate),  # ms
    loop=0,
  )


@functools.partial(jax.jit, static_argnums=0)
def observe(env: Game, state: Any, params: Any) -> jax.Array:
  """Returns what the agent sees, by a compiled program."""
  return env.observe(state, params)
