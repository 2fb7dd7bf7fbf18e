"""Tests `rmc_jax.training.exit_codes`: the contract with the launchers."""

import pytest

from rmc_jax.training import exit_codes


def test_numbers():
  # Launchers outside Python have them too: they cannot change alone.
  assert exit_codes.DONE == 0
  assert exit_codes.PREEMPTED == 75
  assert exit_codes.DIVERGED == 76
  assert exit_codes.CONFIGURATION_ERROR == 77


@pytest.mark.parametrize(
  ('error', 'code'),
  [
    (exit_codes.Preempted, 75),
    (exit_codes.Diverged, 76),
    (exit_codes.ConfigurationError, 77),
  ],
)
def test_each_error_has_its_number(error, code):
  assert error('why').exit_code == code
