"""Tests rmc_jax/cores/conv_lstm.py; test_every_core.py has more."""

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rmc_jax.cores import ConvLSTM
from tests.cores.images import B
from tests.cores.images import CHANNELS
from tests.cores.images import COLUMNS
from tests.cores.images import randomised
from tests.cores.images import ROWS
from tests.cores.images import sequence
from tests.cores.images import SIZE
from tests.cores.images import T
from tests.cores.images import unrolled


@pytest.mark.parametrize('kernel_size', [2, 3])
def test_matches_haiku(kernel_size):
  ours = unrolled(lambda: ConvLSTM(**SIZE, kernel_size=kernel_size))
  haiku = unrolled(
    lambda: hk.Conv2DLSTM((ROWS, COLUMNS), CHANNELS, kernel_size)
  )
  xs = sequence()
  params = randomised(ours.init(jax.random.key(0), xs))
  theirs = {
    'conv2_dlstm/input_to_hidden': params['conv_lstm/input'],
    'conv2_dlstm/hidden_to_hidden': params['conv_lstm/hidden'],
  }
  expected = haiku.init(jax.random.key(0), xs)
  assert jax.tree.map(jnp.shape, theirs) == jax.tree.map(jnp.shape, expected)
  output, state = ours.apply(params, xs)
  expected, expected_state = haiku.apply(theirs, xs)
  # Sums of up to 63 products of order 1, over four steps.
  close = {'atol': 2e-5}
  np.testing.assert_allclose(output, expected.reshape(T, B, -1), **close)
  np.testing.assert_allclose(state.hidden, expected_state.hidden, **close)
  np.testing.assert_allclose(state.cell, expected_state.cell, **close)


def test_core_of_the_paper_has_92672_parameters():
  net = unrolled(lambda: ConvLSTM(5, 5))
  params = net.init(jax.random.key(0), jnp.zeros((1, B, 5, 5, 26)))
  assert sum(leaf.size for leaf in jax.tree.leaves(params)) == 92_672
