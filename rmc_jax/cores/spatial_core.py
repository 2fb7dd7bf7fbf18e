"""The base class of cores whose states are images."""

import haiku as hk
import jax.numpy as jnp

from rmc_jax.checks import positive_int
from rmc_jax.cores.memory_matrix import add_batch_axis
from rmc_jax.cores.projected_core import ProjectedCore
from rmc_jax.types import Array


class SpatialCore(ProjectedCore):
  """A core with inputs [B, rows, columns, channels], flattened or not."""

  def __init__(self, rows: int, columns: int, output_channels: int, name: str):
    super().__init__(name=name)
    self._rows = positive_int('rows', rows)
    self._columns = positive_int('columns', columns)
    self._channels = positive_int('output_channels', output_channels)

  @hk.transparent
  def flatten_inputs(
    self,
    inputs: Array,
    leading_shape: tuple[int, ...],
    treat_input_as_matrix: bool = False,
  ) -> Array:
    """See base class.

    Raises:
      ValueError: images that are not flattened have other rows or columns.
    """
    size = jnp.shape(inputs)[len(leading_shape) : -1]
    if len(size) == 2 and size != (self._rows, self._columns):
      raise ValueError(
        f'{self.name}: inputs have {size[0]} x {size[1]} cells, expected '
        f'{self._rows} x {self._columns}. Set rows and columns to those of the '
        'inputs.'
      )
    return super().flatten_inputs(inputs, leading_shape, treat_input_as_matrix)

  @hk.transparent
  def to_image(self, features: Array) -> Array:
    """Undoes the flattening: [..., features] to [..., R, W, channels].

    Raises:
      ValueError: the number of features is not a multiple of rows * columns.
    """
    *leading, size = features.shape
    cells = self._rows * self._columns
    if size % cells:
      raise ValueError(
        f'{self.name}: inputs have {size} features, expected a multiple of the '
        f'{self._rows} x {self._columns} cells. Set rows and columns to those '
        'of the inputs.'
      )
    shape = self._rows, self._columns, size // cells
    return features.reshape(*leading, *shape)

  @hk.transparent
  def zero_states(
    self, num_layers: int, batch_size: int | None
  ) -> tuple[hk.LSTMState, ...]:
    """Returns hidden and cell of each layer, [B, R, W, C]."""
    zeros = jnp.zeros((self._rows, self._columns, self._channels))
    layer = add_batch_axis(hk.LSTMState(zeros, zeros), batch_size)
    return tuple(layer for _ in range(num_layers))


def flatten_image(image: Array) -> Array:
  """Returns [..., R * W * channels] of [..., R, W, channels]."""
  *leading, rows, columns, channels = image.shape
  return image.reshape(*leading, rows * columns * channels)
