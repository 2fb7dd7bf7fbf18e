"""Tests rmc_jax/parity/compare.py."""

import numpy as np
import pytest

from rmc_jax.parity.cases import Case
from rmc_jax.parity.compare import compare
from rmc_jax.parity.reference import Computation

CASE = Case('steps', Computation('c', 'unroll', {}, {}), 'small')
TRUTH = {
  'outputs': np.array([[-2.0, 1.0, 0.5], [0.25, 0.125, 0.0]]),
  'state': np.array([1e-2, -2e-2]),
}


def shifted(amount, name='outputs', dtype='float32'):
  """The truth in a dtype, one entry off by `amount` of the largest."""
  results = {key: value.astype(dtype) for key, value in TRUTH.items()}
  largest = np.abs(TRUTH[name]).max()
  results[name].flat[1] += amount * largest
  return results


def measure(ours=0.0, theirs=0.0, double=0.0, name='outputs', case=CASE):
  return compare(
    case,
    [shifted(ours, name), shifted(double, name, 'float64')],
    [shifted(theirs, name), TRUTH],
  )


def test_equal_results_pass():
  result = measure()
  assert result.passed
  assert result.relative == result.absolute == result.double == 0.0
  # 0.01 and 0.02 are rounded to float32, by less than 2^-24 of themselves.
  assert 0.0 < result.ours == result.theirs < 2**-24


def test_a_difference_beyond_the_tolerance_fails():
  tolerance = CASE.tolerance
  result = measure(ours=0.6 * tolerance, theirs=-0.5 * tolerance)
  assert not result.passed
  assert result.where == 'outputs'
  # To the rounding of the float32 entries that were moved.
  assert result.relative == pytest.approx(1.1 * tolerance, rel=0.05)
  assert result.absolute == pytest.approx(2.2 * tolerance, rel=0.05)
  assert measure(ours=0.4 * tolerance, theirs=-0.5 * tolerance).passed


def test_within_tolerance_but_further_from_float64_than_the_original_fails():
  assert not measure(ours=3e-6, theirs=4e-7).passed
  assert measure(ours=3e-6, theirs=2e-6).passed


def test_the_error_is_a_mean_over_all_arrays():
  result = measure(ours=2e-6, theirs=-1e-6, name='outputs')
  # In one of two arrays; to the rounding of the entry that was moved.
  assert result.ours == pytest.approx(2e-6 / 2**0.5, rel=0.1)
  assert result.theirs == pytest.approx(1e-6 / 2**0.5, rel=0.1)


def test_a_float64_difference_fails_even_if_tiny_in_float32():
  assert not measure(double=1e-12).passed
  assert measure(double=1e-15).passed


def test_differences_are_relative_to_the_largest_entry_of_all_arrays():
  result = measure(ours=1e-4, name='state')
  # The state's largest entry is 0.02, the outputs' is 2.
  assert result.relative == pytest.approx(1e-6, rel=0.05)
  assert result.where == 'state'
  assert not measure(ours=2e-3, name='state').passed


@pytest.mark.parametrize('side', ['ours', 'theirs', 'double'])
def test_nan_fails(side):
  assert not measure(**{side: np.nan}).passed


def test_exact_cases_allow_no_difference():
  case = CASE._replace(name='initial state')
  assert measure(case=case).passed
  assert not measure(ours=1.2e-7, name='state', case=case).passed


def test_statistical_cases_compare_spread_only():
  case = CASE._replace(name='fresh weights')
  assert measure(ours=0.03, double=0.03)._replace(case=case).passed
  assert not measure(ours=0.2)._replace(case=case).passed


def test_a_missing_result_is_an_error():
  ours = shifted(0.0)
  del ours['state']
  with pytest.raises(ValueError, match=r"'outputs': \(2, 3\)}, expected"):
    compare(CASE, [ours, TRUTH], [shifted(0.0), TRUTH])


def test_an_unknown_result_is_an_error():
  ours = {**shifted(0.0), 'outputs_too': np.zeros(3)}
  with pytest.raises(ValueError, match='outputs_too'):
    compare(CASE, [ours, TRUTH], [shifted(0.0), TRUTH])


def test_results_of_other_cases_are_ignored():
  ours = {**shifted(0.0), 'gradients/inputs': np.full(3, np.nan)}
  assert compare(CASE, [ours, TRUTH], [shifted(0.0), TRUTH]).passed


def test_swapped_axes_are_an_error():
  ours = {**shifted(0.0), 'outputs': TRUTH['outputs'].T.astype('float32')}
  with pytest.raises(ValueError, match=r'\(3, 2\).*expected.*\(2, 3\)'):
    compare(CASE, [ours, TRUTH], [shifted(0.0), TRUTH])
