r"""Gradients of the weights that a loop shares, formed once after the loop.

The gradient of a weight W [X, Y] that T steps use is a sum of T products,
:math:`\sum_t x_t^T g_t` of the rows x_t [R, X] that went in and the gradients
g_t [R, Y] of what came out. In the backward loop each is a pass over an array
of W's size; after it, one product over T * R rows does the same.

How: each use of W in the loop has a `Tap`, two sequences of zeros that it does
not read. Their gradients are defined to be x_t and g_t, which brings these out
of the backward loop, and the gradient of W is defined to be their product.
"""

from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import contextvars
import functools
import math
from typing import Any
from typing import NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp

from rmc_jax.types import Array
from rmc_jax.types import ArrayTree

Step = Callable[[Any, Any], tuple[Any, Any]]
Product = Callable[[Array, Array], Array]


class Tap(NamedTuple):
  """What the backward loop brings out of one use of a weight.

  Attributes:
    rows: [..., R, X]; its gradient is what went into the product.
    gradients: [..., R, Y]; its gradient is that of what came out.
  """

  rows: Array
  gradients: Array


def tap_weights(
  step: Step, inputs: ArrayTree, state: ArrayTree, num_steps: int
) -> tuple[Step, list[Tap | None]]:
  """Takes the weight gradients out of a loop over `step`.

  Only where that moves less: an array of W's size is written and read in each
  step, or else the rows x_t and g_t are, once each and once again at the end.

  Args:
    step: `(inputs, state) -> (outputs, next_state)`, made of `Linear`s.
    inputs: those of one step.
    state: that of one step.
    num_steps: T, the steps of the loop.

  Returns:
    A step that takes `(inputs, taps)` in place of `inputs`, and the taps to
    loop over, [T, ...]: one for each use of a weight, in order, or None.
  """
  uses: list[Callable[[], Tap | None]] = []

  def note(product, x, w, open_tap):
    if 2 * len(x) * sum(w.shape) > math.prod(w.shape):
      uses.append(lambda: None)
    else:
      rows = jax.ShapeDtypeStruct((num_steps, *x.shape), x.dtype)
      uses.append(functools.partial(open_tap, product, rows))

  with _at_each_use(note):
    hk.eval_shape(step, inputs, state)
  # Only now: the weights seen by an abstract evaluation are abstract.
  taps = [open_tap() for open_tap in uses]

  def tapped_step(inputs_and_taps, state):
    inputs, taps = inputs_and_taps
    remaining = iter(taps)
    with _at_each_use(lambda *_: next(remaining)):
      return step(inputs, state)

  return tapped_step, taps


def weight_product(
  product: Product,
  x: Array,
  w: Array,
  open_tap: Callable[[Product, jax.ShapeDtypeStruct], Tap],
) -> Array:
  """`product(x, w)`, whose gradient for w is deferred where a loop wants that.

  Args:
    product: linear in both arguments.
    x: [R, X].
    w: [X, Y].
    open_tap: `open_tap` with the same weight; called outside the loop.

  Returns:
    [R, Y].
  """
  at_use = _at_use.get()
  tap = at_use(product, x, w, open_tap) if at_use else None
  if tap is None:
    return product(x, w)
  return _tapped_product(product, x, w, tap)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def open_tap(product: Product, rows: jax.ShapeDtypeStruct, w: Array) -> Tap:
  """The tap of one use of `w`, in a loop over [T, R, X] `rows`."""
  flat = jax.ShapeDtypeStruct((1, rows.shape[-1]), rows.dtype)
  out = jax.eval_shape(product, flat, w)  # [1, Y]
  return Tap(
    jnp.zeros(rows.shape, rows.dtype),
    jnp.zeros((*rows.shape[:-1], out.shape[-1]), out.dtype),
  )


def _open_forward(product, rows, w):
  return open_tap(product, rows, w), w


def _open_backward(product, rows, w, tap):
  del rows
  x, g = (factor.reshape(-1, factor.shape[-1]) for factor in tap)  # [T * R, .]
  return jax.linear_transpose(functools.partial(product, x), w)(g)


open_tap.defvjp(_open_forward, _open_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _tapped_product(product: Product, x: Array, w: Array, tap: Tap) -> Array:
  del tap
  return product(x, w)


def _tapped_forward(product, x, w, tap):
  del tap
  return product(x, w), (x, w)


def _tapped_backward(product, factors, g):
  x, w = factors
  (d_x,) = jax.linear_transpose(lambda x: product(x, w), x)(g)
  return d_x, None, Tap(x, g)  # None: w's own comes with the tap.


_tapped_product.defvjp(_tapped_forward, _tapped_backward)

# What happens at each use of a weight, while a step is traced for its loop.
_at_use: contextvars.ContextVar[Callable[..., Tap | None] | None] = (
  contextvars.ContextVar('at_use', default=None)
)


@contextlib.contextmanager
def _at_each_use(function: Callable[..., Tap | None]) -> Iterator[None]:
  token = _at_use.set(function)
  try:
    yield
  finally:
    _at_use.reset(token)
