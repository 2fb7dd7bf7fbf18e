"""Tests rmc_jax/rl/network.py."""

import os
import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rmc_jax.rl.network import check_network
from rmc_jax.rl.network import empty_inputs
from tests.rl.agents import CORES
from tests.rl.agents import make_network
from tests.rl.agents import random_params
from tests.rl.recall import CUES
from tests.rl.recall import Recall

T, B = 4, 5


@pytest.mark.parametrize('core', CORES)
def test_functions_share_their_parameters(core):
  network = make_network(Recall(), core)
  params = random_params(network)
  inputs = empty_inputs(Recall().observation_spec, T, B)
  state = network.initial_state(params, B)
  output, last = network.apply(params, inputs, state)
  assert output.logits.shape == (T, B, CUES)
  assert output.value.shape == (T, B)
  assert jax.tree.map(jnp.shape, last) == jax.tree.map(jnp.shape, state)


def test_trace_has_the_attention_of_each_step():
  network = make_network(Recall(), 'relational_memory')
  params = random_params(network)
  inputs = empty_inputs(Recall().observation_spec, T, B)
  state = network.initial_state(params, B)
  (output, trace), last = network.trace(params, inputs, state)
  expected, expected_last = network.apply(params, inputs, state)
  # 3 slots, 2 heads, a block.
  assert trace.attention.shape == (T, B, 1, 2, 3, 4)
  np.testing.assert_allclose(trace.attention.sum(-1), 1, rtol=1e-5)
  # The trace is computed in another program.
  np.testing.assert_allclose(output.logits, expected.logits, atol=1e-5)
  np.testing.assert_allclose(last, expected_last, atol=1e-5)


def test_check_raises_what_the_model_refuses():
  check_network(make_network(Recall()))
  with pytest.raises(ValueError, match='strides must have one number per'):
    check_network(make_network(Recall(), strides=(1, 1)))


def test_check_leaves_the_choice_of_devices_open():
  program = """
import jax
from rmc_jax.rl.network import check_network
from tests.rl.agents import make_network
from tests.rl.recall import Recall
check_network(make_network(Recall()))
jax.config.update('jax_num_cpu_devices', 3)
print(jax.device_count())
"""
  environment = {
    name: value for name, value in os.environ.items() if name != 'XLA_FLAGS'
  }
  out = subprocess.run(
    [sys.executable, '-c', program],
    capture_output=True,
    text=True,
    check=False,
    cwd=pathlib.Path(__file__).parents[2],
    env=environment | {'JAX_PLATFORMS': 'cpu'},
  )
  assert out.stdout == '3\n', out.stderr


def test_empty_inputs_are_those_of_the_start_of_an_episode():
  spec = jax.ShapeDtypeStruct((2, 3, 7), jnp.uint8)
  inputs = empty_inputs(spec, T, B)
  assert inputs.observation.shape == (T, B, 2, 3, 7)
  assert inputs.observation.dtype == jnp.uint8
  assert inputs.first.all()
  assert not inputs.last_action.any()
  assert not inputs.last_reward.any()
