"""Pictures and animations of games, for people."""

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


def image(env: Game, state: Any, params: Any, scale: int = 16) -> np.ndarray:
  """Returns the whole game as a picture.

  Args:
    env: the game; its own view does not matter.
    state: of one game.
    params: the rules.
    scale: pixels of a cell, in each direction.

  Returns:
    [scale * rows, scale * columns, 3] uint8.
  """
  positive_int('scale', scale)
  whole = dataclasses.replace(env, view='full', pixels='rgb')
  pixels = np.asarray(observe(whole, state, params))
  pixels = np.round(255 * pixels).astype(np.uint8)
  return pixels.repeat(scale, 0).repeat(scale, 1)


def save_gif(
  path: str | pathlib.Path, frames: Sequence[np.ndarray], *, rate: float = 10.0
) -> None:
  """Writes an animation that repeats.

  Args:
    path: of the file; its folder must exist.
    frames: pictures of equal size, as `image` returns them; at least one.
    rate: frames in a second, at most 50.
  """
  if not frames:
    raise ValueError('frames must hold at least one picture. Got: none.')
  if not 0 < rate <= 50:
    raise ValueError(f'rate must be above 0 and at most 50. Got: {rate}.')
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
