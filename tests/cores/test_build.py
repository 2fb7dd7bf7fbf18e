"""Tests rmc_jax/cores/build.py."""

import haiku as hk
import jax.numpy as jnp
import pytest

import rmc_jax
from rmc_jax.cores.build import build_core
from rmc_jax.cores.build import CoreConfig
from rmc_jax.cores.build import NAMES


@pytest.mark.parametrize('name, kind, size', [
    ('relational_memory', rmc_jax.RelationalMemory, 3 * 5 * 2),
    ('paper_relational_memory', rmc_jax.PaperRelationalMemory, 3 * 5 * 2),
    ('lstm', hk.LSTM, 7),
])
def test_a_name_becomes_its_core(name, kind, size):
  config = CoreConfig(
      name=name, mem_slots=3, head_size=5, num_heads=2, hidden_size=7
  )
  config.validate()

  def core():
    core = build_core(config)
    output, _ = core(jnp.ones((1, 4)), core.initial_state(1))
    return isinstance(core, kind), output.shape

  assert hk.testing.transform_and_run(core)() == (True, (1, size))


def test_every_name_is_tested():
  assert set(NAMES) == {'relational_memory', 'paper_relational_memory', 'lstm'}


@pytest.mark.parametrize('fields, message', [
    ({'name': 'gru'}, "core.name must be one of .*lstm.* 'gru'"),
    ({'mem_slots': 0}, 'core: mem_slots must be >= 1. Got: 0'),
    ({'gate_style': 'row'}, "core: gate_style .* 'row'"),
    (
        {'name': 'paper_relational_memory', 'gate_style': None},
        'core: gate_style .* None',
    ),
    ({'name': 'lstm', 'hidden_size': 0}, 'core: hidden_size must be >= 1'),
])
def test_what_a_core_refuses_is_said(fields, message):
  with pytest.raises(ValueError, match=message):
    CoreConfig(**fields).validate()
