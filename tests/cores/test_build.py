"""Tests rmc_jax/cores/build.py."""

import inspect
from unittest import mock

import haiku as hk
import jax.numpy as jnp
import pytest

import rmc_jax
from rmc_jax import cores
from rmc_jax.cores.build import build_core
from rmc_jax.cores.build import CoreConfig
from rmc_jax.cores.build import NAMES


@pytest.mark.parametrize(
  'name, kind, size',
  [
    ('relational_memory', rmc_jax.RelationalMemory, 3 * 5 * 2),
    ('paper_relational_memory', rmc_jax.PaperRelationalMemory, 3 * 5 * 2),
    ('lstm', cores.LSTM, 7 * 3),
    ('lstm_bank', cores.LSTMBank, 22 // 2),
    ('entity_network', cores.EntityNetwork, 5 * 13),
    ('dnc', cores.DNC, 7),
  ],
)
def test_a_name_becomes_its_core(name, kind, size):
  config = CoreConfig(
    name=name,
    mem_slots=3,
    head_size=5,
    num_heads=2,
    hidden_size=7,
    num_layers=3,
    num_cells=2,
    total_size=22,
    num_slots=5,
    slot_size=13,
    memory_size=6,
    word_size=4,
  )
  config.validate()

  def core():
    core = build_core(config)
    output, _ = core(jnp.ones((1, 4)), core.initial_state(1))
    return isinstance(core, kind), output.shape

  assert hk.testing.transform_and_run(core)() == (True, (1, size))


def test_every_name_is_tested():
  assert set(NAMES) == {
    'relational_memory',
    'paper_relational_memory',
    'lstm',
    'lstm_bank',
    'entity_network',
    'dnc',
  }


@pytest.mark.parametrize(
  'name, cls',
  [
    ('lstm', cores.LSTM),
    ('lstm_bank', cores.LSTMBank),
    ('entity_network', cores.EntityNetwork),
    ('dnc', cores.DNC),
  ],
)
def test_every_setting_of_a_baseline_can_be_configured(name, cls):
  """And is handed on: each is set to what the constructor would not choose."""
  given = {}

  def spy(**settings):
    given.update(settings)

  signature = inspect.signature(cls.__init__)
  settings = {
    parameter.name: _another(getattr(CoreConfig(), parameter.name))
    for parameter in list(signature.parameters.values())[1:]
    if parameter.name not in ('name', 'feedback_size', 'policy')
  }
  with mock.patch(f'rmc_jax.cores.build.{cls.__name__}') as constructor:
    constructor.side_effect = lambda *args, **kwargs: spy(
      **dict(zip(settings, args, strict=False)), **kwargs
    )
    build_core(CoreConfig(name=name, **settings))
  assert given == settings


def _another(value):
  if isinstance(value, bool):
    return not value
  if isinstance(value, str):
    return f'not {value}'
  return 3 if value is None else value + 1


@pytest.mark.parametrize(
  'fields, message',
  [
    ({'name': 'gru'}, "core.name must be one of .*lstm.* 'gru'"),
    ({'mem_slots': 0}, 'core: mem_slots must be >= 1. Got: 0'),
    ({'gate_style': 'row'}, "core: gate_style .* 'row'"),
    (
      {'name': 'paper_relational_memory', 'gate_style': None},
      'core: gate_style .* None',
    ),
    ({'name': 'lstm', 'hidden_size': 0}, 'core: hidden_size must be >= 1'),
    ({'name': 'lstm_bank', 'summed': 'all'}, "core: summed .* 'all'"),
    ({'name': 'entity_network', 'num_slots': 0}, 'core: num_slots must be'),
    ({'name': 'dnc', 'controller': 'gru'}, "core: controller .* 'gru'"),
  ],
)
def test_what_a_core_refuses_is_said(fields, message):
  with pytest.raises(ValueError, match=message):
    CoreConfig(**fields).validate()
