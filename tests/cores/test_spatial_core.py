"""Tests rmc_jax/cores/spatial_core.py through its subclasses."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rmc_jax.cores import ConvLSTM
from rmc_jax.cores import DRC
from tests.cores.every_core import transform
from tests.cores.images import B
from tests.cores.images import randomised
from tests.cores.images import sequence
from tests.cores.images import SIZE
from tests.cores.images import T
from tests.cores.images import unrolled


@pytest.mark.parametrize('core', [ConvLSTM, DRC])
def test_refuses_inputs_of_other_sizes(core):
  net = unrolled(lambda: core(**SIZE))
  message = 'inputs have 16 features, expected a multiple of the 5 x 3 cells'
  with pytest.raises(ValueError, match=message):
    net.init(jax.random.key(0), jnp.zeros((T, B, 16)))


@pytest.mark.parametrize('core', [ConvLSTM, DRC])
@pytest.mark.parametrize('size', [*SIZE, 'kernel_size'])
def test_refuses_sizes_below_one(core, size):
  with pytest.raises(ValueError, match=f'{size} must be at least 1. Got: 0'):
    transform(lambda: core(**SIZE | {size: 0})).init(None)


@pytest.mark.parametrize('core', [ConvLSTM, DRC])
def test_refuses_images_of_another_shape(core):
  net = unrolled(lambda: core(**SIZE))
  message = 'inputs have 3 x 5 cells, expected 5 x 3'
  with pytest.raises(ValueError, match=message):
    net.init(jax.random.key(0), sequence().swapaxes(2, 3))


@pytest.mark.parametrize('core', [ConvLSTM, DRC])
def test_images_may_be_flattened(core):
  net = unrolled(lambda: core(**SIZE))
  params = randomised(net.init(jax.random.key(0), sequence()))
  flat = sequence().reshape(T, B, -1)
  np.testing.assert_array_equal(
    net.apply(params, flat)[0], net.apply(params, sequence())[0]
  )
