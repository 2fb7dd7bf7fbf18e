"""Tests rmc_jax/cores/build.py."""

import dataclasses
from unittest import mock

import haiku as hk
import jax.numpy as jnp
import pytest

from rmc_jax import cores
from rmc_jax.cores import build
from rmc_jax.cores.build import build_core
from rmc_jax.cores.build import CORES
from rmc_jax.cores.conv_lstm import ConvLSTMConfig
from rmc_jax.cores.dnc import DNCConfig
from rmc_jax.cores.drc import DRCConfig
from rmc_jax.cores.entity_network import EntityNetworkConfig
from rmc_jax.cores.lstm import LSTMConfig
from rmc_jax.cores.lstm_bank import LSTMBankConfig
from rmc_jax.cores.paper_relational_memory import PaperRelationalMemoryConfig
from rmc_jax.cores.relational_memory import RelationalMemoryConfig


@pytest.mark.parametrize(
  'config, core, size',
  [
    (
      RelationalMemoryConfig(mem_slots=3, head_size=5, num_heads=2),
      cores.RelationalMemory,
      3 * 5 * 2,
    ),
    (
      PaperRelationalMemoryConfig(mem_slots=3, head_size=5, num_heads=2),
      cores.PaperRelationalMemory,
      3 * 5 * 2,
    ),
    (LSTMConfig(hidden_size=7, num_layers=3), cores.LSTM, 7 * 3),
    (LSTMBankConfig(total_size=22, num_cells=2), cores.LSTMBank, 22 // 2),
    (
      EntityNetworkConfig(num_slots=5, slot_size=13),
      cores.EntityNetwork,
      5 * 13,
    ),
    (DNCConfig(memory_size=6, word_size=4, hidden_size=7), cores.DNC, 7),
    (
      ConvLSTMConfig(rows=2, columns=1, output_channels=7),
      cores.ConvLSTM,
      2 * 7,
    ),
    (
      DRCConfig(rows=1, columns=2, output_channels=7),
      cores.DRC,
      2 * (7 + 4 // 2),
    ),
  ],
  ids=lambda value: getattr(value, 'name', ''),
)
def test_builds_the_core_of_the_configuration(config, core, size):
  build.validate(config)

  def run():
    built = build_core(config)
    output, _ = built(jnp.ones((1, 4)), built.initial_state(1))
    return type(built), output.shape

  assert hk.testing.transform_and_run(run)() == (core, (1, size))


@pytest.mark.parametrize('name', CORES)
def test_passes_every_field_to_the_constructor(name):
  config_class, _ = CORES[name]
  config = config_class()
  for field in build.argument_names(config_class):
    setattr(config, field, object())
  fields = {
    field.name: getattr(config, field.name)
    for field in dataclasses.fields(config)
    if field.name not in ('name', 'compute_dtype')
  }
  constructor = mock.Mock()
  with mock.patch.dict(CORES, {name: (config_class, constructor)}):
    build_core(config)
  constructor.assert_called_once_with(**fields)


def test_relational_memories_have_attention_weights():
  assert build.ATTENDING == ('relational_memory', 'paper_relational_memory')


def test_convolutional_cores_see_images():
  assert build.SPATIAL == ('conv_lstm', 'drc')


@pytest.mark.parametrize(
  'config, message',
  [
    (LSTMConfig(name='gru'), "core.name must be one of .*lstm.* 'gru'"),
    (LSTMConfig(name='dnc'), "Got: 'dnc' in a LSTMConfig"),
    (
      RelationalMemoryConfig(mem_slots=0),
      'core: mem_slots must be at least 1. Got: 0',
    ),
    (RelationalMemoryConfig(gate_style='row'), "core: gate_style .* 'row'"),
    (
      PaperRelationalMemoryConfig(gate_style=None),
      'core: gate_style .* None',
    ),
    (
      LSTMConfig(compute_dtype='float16'),
      "compute_dtype must be one of float32, bfloat16. Got: 'float16'",
    ),
    (LSTMConfig(hidden_size=0), 'core: hidden_size must be at least 1'),
    (LSTMBankConfig(summed='all'), "core: summed .* 'all'"),
    (EntityNetworkConfig(num_slots=0), 'core: num_slots must be'),
    (DNCConfig(controller='gru'), "core: controller .* 'gru'"),
  ],
)
def test_refuses_arguments_that_the_core_refuses(config, message):
  with pytest.raises(ValueError, match=message):
    build.validate(config)
