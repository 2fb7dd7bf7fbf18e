"""Checks of arguments; errors name the argument, its value and the rule."""

from collections.abc import Iterable
import operator
from typing import Any


def positive_int(name: str, value: int, least: int = 1) -> int:
  """Returns `value` if it is an integer of at least `least`.

  Raises:
    TypeError: it is not an integer.
    ValueError: it is too small.
  """
  try:
    number = operator.index(value)
  except TypeError:
    raise TypeError(f'{name} must be an integer. Got: {value!r}.') from None
  if number < least:
    raise ValueError(f'{name} must be at least {least}. Got: {value}.')
  return number


def one_of(name: str, value: Any, choices: Iterable[Any]) -> Any:
  """Returns `value` if it is one of `choices`, and raises ValueError if not."""
  choices = tuple(choices)
  if value not in choices:
    raise ValueError(
      f'{name} must be one of {", ".join(map(str, choices))}. Got: {value!r}.'
    )
  return value


def all_hold(holder: Any, checks: Iterable[tuple[str, bool, str]]) -> None:
  """Raises ValueError for the first check that fails.

  Args:
    holder: what has the attributes.
    checks: of each, the name of the attribute, whether its value is good, and
      what is expected of it.
  """
  for name, good, expected in checks:
    if not good:
      raise ValueError(
        f'{name} must be {expected}. Got: {getattr(holder, name)!r}.'
      )
