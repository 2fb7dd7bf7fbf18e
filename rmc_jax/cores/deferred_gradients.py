r"""Gradients of a loop's weights, computed once after the backward loop.

The gradient of a weight W [X, Y] used in T steps is the sum of T products
:math:`\sum_t x_t^T g_t` of the inputs x_t [R, X] and the gradients g_t [R, Y]
of the outputs. In the backward loop each product passes over an array of W's
size; after the loop, one product over T * R rows replaces them all.

Each use of W in the loop is given a `WeightGradientProbe`, two sequences of
zeros that the step does not read. Their cotangents are defined as x_t and g_t,
which carries these out of the backward loop, and the cotangent of W is defined
as the product of the two.
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


class WeightGradientProbe(NamedTuple):
  """Zeros whose cotangents are the factors of a weight's gradient.

  Attributes:
    inputs: [..., R, X]; its cotangent is the input of the product.
    gradients: [..., R, Y]; its cotangent is that of the product's output.
  """

  inputs: Array
  gradients: Array


def add_probes(
  step: Step, inputs: ArrayTree, state: ArrayTree, num_steps: int
) -> tuple[Step, list[WeightGradientProbe | None]]:
  """Moves the weight gradients of a loop over `step` out of its backward pass.

  Only for weights where this moves less memory: the loop reads and writes an
  array of W's size in each step, the probes write and read x_t and g_t once
  each.

  Args:
    step: `(inputs, state) -> (outputs, next_state)`, made of `Linear`s.
    inputs: the inputs of one step.
    state: the state of one step.
    num_steps: T.

  Returns:
    A step that takes `(inputs, probes)` in place of `inputs`, and the probes to
    scan over, [T, ...]: one for each use of a weight, in order, or None.
  """
  uses: list[Callable[[], WeightGradientProbe | None]] = []

  def record(product, x, w, make_probe):
    if 2 * len(x) * sum(w.shape) > math.prod(w.shape):
      uses.append(lambda: None)
    else:
      sequence = jax.ShapeDtypeStruct((num_steps, *x.shape), x.dtype)
      uses.append(functools.partial(make_probe, product, sequence))

  with _at_each_use(record):
    hk.eval_shape(step, inputs, state)
  # Made after the abstract evaluation, in which the weights are abstract.
  probes = [make() for make in uses]

  def step_with_probes(inputs_and_probes, state):
    inputs, probes = inputs_and_probes
    remaining = iter(probes)
    with _at_each_use(lambda *_: next(remaining)):
      return step(inputs, state)

  return step_with_probes, probes


def weight_product(
  product: Product,
  x: Array,
  w: Array,
  make_probe: Callable[[Product, jax.ShapeDtypeStruct], WeightGradientProbe],
) -> Array:
  """Computes `product(x, w)`, deferring the gradient of w inside `add_probes`.

  Args:
    product: a function linear in both arguments.
    x: [R, X].
    w: [X, Y].
    make_probe: `make_probe` with the same weight; called outside the loop.
  """
  at_use = _at_use.get()
  probe = at_use(product, x, w, make_probe) if at_use else None
  if probe is None:
    return product(x, w)
  return _product_with_probe(product, x, w, probe)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def make_probe(
  product: Product, inputs: jax.ShapeDtypeStruct, w: Array
) -> WeightGradientProbe:
  """Makes the probe of one use of `w`, in a loop over [T, R, X] `inputs`."""
  row = jax.ShapeDtypeStruct((1, inputs.shape[-1]), inputs.dtype)
  out = jax.eval_shape(product, row, w)  # [1, Y]
  return WeightGradientProbe(
    jnp.zeros(inputs.shape, inputs.dtype),
    jnp.zeros((*inputs.shape[:-1], out.shape[-1]), out.dtype),
  )


def _make_probe_forward(product, inputs, w):
  return make_probe(product, inputs, w), w


def _make_probe_backward(product, inputs, w, probe):
  del inputs
  x, g = (factor.reshape(-1, factor.shape[-1]) for factor in probe)  # [T*R, .]
  return jax.linear_transpose(functools.partial(product, x), w)(g)


make_probe.defvjp(_make_probe_forward, _make_probe_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _product_with_probe(
  product: Product, x: Array, w: Array, probe: WeightGradientProbe
) -> Array:
  del probe
  return product(x, w)


def _product_forward(product, x, w, probe):
  del probe
  return product(x, w), (x, w)


def _product_backward(product, residuals, g):
  x, w = residuals
  (d_x,) = jax.linear_transpose(lambda x: product(x, w), x)(g)
  return d_x, None, WeightGradientProbe(x, g)  # `make_probe` has that of w.


_product_with_probe.defvjp(_product_forward, _product_backward)

# Called at each use of a weight while a step is traced for its loop.
_at_use: contextvars.ContextVar[
  Callable[..., WeightGradientProbe | None] | None
] = contextvars.ContextVar('at_use', default=None)


@contextlib.contextmanager
def _at_each_use(
  function: Callable[..., WeightGradientProbe | None],
) -> Iterator[None]:
  token = _at_use.set(function)
  try:
    yield
  finally:
    _at_use.reset(token)
