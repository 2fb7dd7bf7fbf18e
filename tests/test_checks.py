"""Tests rmc_jax/checks.py."""

import types

import numpy as np
import pytest

from rmc_jax.checks import all_hold
from rmc_jax.checks import one_of
from rmc_jax.checks import positive_int


def test_integers_of_any_type_are_accepted():
  for value in (3, np.int32(3), np.uint8(3)):
    got = positive_int('size', value, least=3)
    assert got == 3
    assert type(got) is int


@pytest.mark.parametrize('value', [0, -1, np.int64(0)])
def test_small_integers_are_refused(value):
  with pytest.raises(
    ValueError, match=f'size must be at least 1. Got: {value}'
  ):
    positive_int('size', value)
  with pytest.raises(ValueError, match=r'size must be at least 4. Got: 3\.'):
    positive_int('size', 3, least=4)


@pytest.mark.parametrize('value', [1.0, '1', None])
def test_other_types_are_refused(value):
  with pytest.raises(
    TypeError, match=f'size must be an integer. Got: {value!r}'
  ):
    positive_int('size', value)


def test_one_of():
  one_of('name', 'b', ('a', 'b'))
  one_of('size', 2, range(3))
  one_of('name', 'b', iter('ab'))
  with pytest.raises(ValueError, match=r"name must be one of a, b. Got: 'c'\."):
    one_of('name', 'c', {'a': 1, 'b': 2})


def test_the_first_check_that_fails_is_reported():
  point = types.SimpleNamespace(x=3, y='four')
  all_hold(point, [('x', True, 'small'), ('y', True, 'short')])
  with pytest.raises(ValueError, match=r"y must be short. Got: 'four'\."):
    all_hold(point, [('x', True, ''), ('y', False, 'short'), ('x', False, '')])
