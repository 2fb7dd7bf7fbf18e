"""Tests rmc_jax/cores/drc.py; test_every_core.py has more."""

import jax
import numpy as np
import pytest

from rmc_jax.cores import DRC
from tests.cores.images import CHANNELS
from tests.cores.images import randomised
from tests.cores.images import sequence
from tests.cores.images import SIZE
from tests.cores.images import unrolled
from tests.reference import drc as reference


@pytest.mark.parametrize('layers, repeats', [(1, 1), (2, 3), (3, 2)])
def test_matches_reference(layers, repeats):
  net = unrolled(lambda: DRC(**SIZE, num_layers=layers, num_repeats=repeats))
  xs = sequence()
  params = randomised(net.init(jax.random.key(0), xs))
  output, state = net.apply(params, xs)
  expected, expected_state = reference.unroll(
    jax.tree.map(np.float64, params), np.float64(xs), layers, repeats, CHANNELS
  )
  # Sums of up to 250 products, over up to 24 cells one after another.
  close = {'atol': 1e-4}
  np.testing.assert_allclose(output, expected, **close)
  for layer, (hidden, cell) in zip(state, expected_state, strict=True):
    np.testing.assert_allclose(layer.hidden, hidden, **close)
    np.testing.assert_allclose(layer.cell, cell, **close)
