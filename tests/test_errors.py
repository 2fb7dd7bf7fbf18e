"""Tests `rmc_jax.errors`: the contract with the launchers."""

import pytest

from rmc_jax import errors


def test_exit_codes():
  # Pinned: launchers written in shell and YAML repeat these numbers.
  assert errors.DONE == 0
  assert errors.PREEMPTED == 75
  assert errors.DIVERGED == 76
  assert errors.CONFIGURATION_ERROR == 77


@pytest.mark.parametrize(
  ('error', 'code'),
  [
    (errors.Preempted, 75),
    (errors.Diverged, 76),
    (errors.ConfigurationError, 77),
  ],
)
def test_each_error_carries_its_exit_code(error, code):
  assert error('why').exit_code == code
