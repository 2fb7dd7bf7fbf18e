"""Tests rmc_jax/cores/config.py and its subclass beside each core."""

import dataclasses
import inspect

import pytest

from rmc_jax.cores.build import CORES

# `feedback_size` is for a core that contains an LSTM, not for users.
NOT_CONFIGURED = {'self', 'name', 'feedback_size'}


@pytest.mark.parametrize('name', CORES)
def test_fields_and_defaults_are_those_of_the_constructor(name):
  config_class, core = CORES[name]
  parameters = {
    parameter.name: parameter.default
    for parameter in inspect.signature(core.__init__).parameters.values()
    if parameter.name not in NOT_CONFIGURED
  }
  config = dataclasses.asdict(config_class())
  assert config.pop('name') == name
  assert config.pop('compute_dtype') == 'float32'
  assert list(config) == list(parameters)
  required = {
    parameter
    for parameter, default in parameters.items()
    if default is inspect.Parameter.empty
  }
  assert config == {
    parameter: config[parameter] if parameter in required else default
    for parameter, default in parameters.items()
  }
