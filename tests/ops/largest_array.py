"""Measures the arrays that a function creates."""

import jax
import jax.extend
import numpy as np


def largest_array(function, *args):
  """Returns the size of the largest result of any operation, also nested."""
  jaxpr = jax.make_jaxpr(function)(*args).jaxpr
  return max(
    np.prod(out.aval.shape) for eqn in _equations(jaxpr) for out in eqn.outvars
  )


def _equations(jaxpr):
  for eqn in jaxpr.eqns:
    yield eqn
    for inner in jax.extend.core.jaxprs_in_params(eqn.params):
      yield from _equations(inner)
