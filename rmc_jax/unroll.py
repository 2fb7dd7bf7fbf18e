"""Unrolls any recurrent core over a sequence, as fast as the core allows."""

from collections.abc import Callable
import functools
from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp

from rmc_jax.cores import AttendingCore
from rmc_jax.cores import ProjectedCore
from rmc_jax.cores.deferred_gradients import tap_weights
from rmc_jax.types import Array
from rmc_jax.types import ArrayTree

# Those of jax.checkpoint_policies that are policies and not makers of them.
REMAT_POLICIES = (
  'everything_saveable',
  'nothing_saveable',
  'dots_saveable',
  'dots_with_no_batch_dims_saveable',
)


def unroll(
  core: Callable[..., tuple[ArrayTree, ArrayTree]],
  inputs: ArrayTree,
  state: ArrayTree,
  *,
  time_major: bool = True,
  treat_input_as_matrix: bool = False,
  reset: Array | None = None,
  lengths: Array | None = None,
  remat: bool | str | Callable[..., Any] | None = None,
  unroll: int = 1,
  defer_weight_gradients: bool = True,
  return_all_states: bool = False,
  return_trace: bool = False,
) -> tuple[ArrayTree, ArrayTree]:
  """Runs `core` over a sequence, carrying the state.

  Outputs, states and gradients are those of
  `hk.dynamic_unroll(core, inputs, state)`. What a `ProjectedCore` computes from
  the inputs alone is computed for all steps at once, before the loop; any other
  core, `hk.DeepRNN` and `hk.ResetCore` among them, is looped over unchanged.

  Args:
    core: a function `(inputs, state) -> (outputs, next_state)`, usually an
      `hk.RNNCore`.
    inputs: a nest of [T, B, ...] arrays ([T, ...] for an unbatched state). For
      a `ProjectedCore` one array, its axes after B flattened as the core does.
    state: the state before the first step.
    time_major: if False, `inputs`, `reset`, outputs and the states of
      `return_all_states` have the B axis before the T axis.
    treat_input_as_matrix: join the rows of [T, B, I, ...] inputs to the memory
      one by one; only for an `AttendingCore`.
    reset: [T, B] booleans, [T] unbatched: where True the step starts from
      `core.initial_state`, as after the end of an episode.
    lengths: [B] integers, () unbatched: example b ends after `lengths[b]`
      steps. From there on its state stays as it was and its outputs are zero,
      as with the `sequence_length` of TensorFlow's `dynamic_rnn`.
    remat: what the backward pass recomputes instead of keeping it. None, for a
      `ProjectedCore`: all but the results of products ('dots_saveable'), which
      costs no time; for any other core as False: nothing. True: each step from
      its state, memory for T states in place of T steps' work. Or a policy of
      `jax.checkpoint_policies`; one of REMAT_POLICIES also by name.
    unroll: steps in one iteration of the loop, as in `hk.dynamic_unroll`.
    defer_weight_gradients: form the gradients of large weights once, after the
      backward loop; only for a `ProjectedCore`, and where `remat` leaves the
      products' factors in memory (None, False). The numbers differ by rounding.
      Such a gradient has no forward mode (`jax.jvp`, `jax.jacfwd`), for which
      this must be False.
    return_all_states: return the state after every step, not only the last.
    return_trace: return `(outputs, StepTrace)` in place of the outputs, each
      field with the axes of `outputs` in front; only for an `AttendingCore`.

  Returns:
    The outputs, a nest of [T, B, ...] arrays, and the last state (or all).

  Raises:
    TypeError: `reset` is not boolean or `lengths` not integer.
    ValueError: shapes do not fit each other, or an option needs a core with
      more methods than this one has.
  """
  reset = None if reset is None else jnp.asarray(reset)
  lengths = None if lengths is None else jnp.asarray(lengths)
  projected = isinstance(core, ProjectedCore)
  for option, value in {
    'treat_input_as_matrix': treat_input_as_matrix,
    'return_trace': return_trace,
  }.items():
    if value and not isinstance(core, AttendingCore):
      raise ValueError(
        f'{option}=True needs a relational memory of rmc_jax, an '
        f'AttendingCore; {type(core).__name__} is none.'
      )
  num_steps, *batch_shape = _leading_shape(
    core, inputs, state, time_major, reset, lengths
  )
  if projected:
    inputs = core.flatten_inputs(
      inputs,
      tuple(_swap([num_steps, *batch_shape], time_major)),
      treat_input_as_matrix,
    )
    options = {'treat_input_as_matrix': True} if treat_input_as_matrix else {}
    inputs = core.project(inputs, **options)
    state = core.widen_state(state)
    step = core.step
    if return_trace and isinstance(core, AttendingCore):
      step = core.trace_step
    step = functools.partial(_loaded_step, step)
  else:
    step = core

  active = None
  if lengths is not None:
    shape = (num_steps, *batch_shape)
    steps = jax.lax.broadcasted_iota(jnp.int32, shape, 0)
    active = steps < jnp.broadcast_to(lengths, shape)  # [T, B]
    active = active if time_major else active.swapaxes(0, 1)
  initial_state = None
  if reset is not None:
    make_initial_state = getattr(core, 'initial_state', None)
    if make_initial_state is None:
      raise ValueError(
        'reset needs a core with an initial_state to return to; '
        f'{type(core).__name__} has none.'
      )
    initial_state = make_initial_state(*batch_shape or (None,))
  step = functools.partial(_controlled_step, step, initial_state)
  xs = inputs, reset, active
  if projected and defer_weight_gradients and not remat:
    step, xs = _tapped(step, xs, state, time_major, num_steps)
  if remat is None and projected:
    remat = 'dots_saveable'
  if remat and not hk.running_init():  # It would sort the parameters by name.
    step = _rematerialized(step, remat)
  return hk.dynamic_unroll(
    step,
    xs,
    state,
    time_major=time_major,
    return_all_states=return_all_states,
    unroll=unroll,
  )


def _leading_shape(core, inputs, state, time_major, reset, lengths):
  """[T, B] or [T], after checking that everything given agrees on it."""
  leaves = jax.tree.leaves(inputs)
  if not leaves or any(jnp.ndim(leaf) < 1 for leaf in leaves):
    raise ValueError(
      'inputs must be a nest of arrays with a time axis. Got: '
      f'{jax.tree.map(jnp.shape, inputs)}.'
    )
  if isinstance(core, ProjectedCore):
    batch_rank = len(core.batch_shape(state))
  elif reset is not None:
    batch_rank = jnp.ndim(reset) - 1
  elif lengths is not None:
    batch_rank = jnp.ndim(lengths)
  else:  # What the core makes of axes after time is its own affair.
    batch_rank = 0 if time_major else 1
  if batch_rank not in (0, 1):
    raise ValueError(
      'reset must be [T, B] or, unbatched, [T], and lengths [B] or (). '
      f'Got shapes {_shape(reset)} and {_shape(lengths)}.'
    )
  if not time_major and batch_rank == 0:
    raise ValueError(
      'time_major=False needs a batch axis before the time axis, but the '
      'state is unbatched.'
    )
  shapes = {jnp.shape(leaf)[: 1 + batch_rank] for leaf in leaves}
  if len(shapes) > 1 or any(len(shape) < 1 + batch_rank for shape in shapes):
    raise ValueError(
      'All inputs must begin with the same time and batch axes. Got: '
      f'{sorted(shapes)}.'
    )
  (leading,) = shapes
  _check_option('reset', reset, leading, jnp.bool_, 'reset.astype(bool)')
  leading = tuple(_swap(list(leading), time_major))
  _check_option('lengths', lengths, leading[1:], jnp.integer, 'integers')
  if isinstance(core, ProjectedCore) and leading[1:] != core.batch_shape(state):
    raise ValueError(
      f'The inputs have time and batch axes {leading}, but the state has '
      f'batch axes {core.batch_shape(state)}.'
    )
  return leading


def _check_option(name, value, shape, dtype, remedy):
  """Raises unless an optional array has the shape and kind it must have."""
  if value is None:
    return
  if jnp.shape(value) != tuple(shape):
    raise ValueError(
      f'{name} has shape {jnp.shape(value)}, expected {tuple(shape)}, as the '
      'inputs have it.'
    )
  if not jnp.issubdtype(jnp.result_type(value), dtype):
    raise TypeError(f'{name} is {jnp.result_type(value)}, expected {remedy}.')


def _shape(value) -> tuple[int, ...] | None:
  return None if value is None else jnp.shape(value)


def _swap(axes: list, time_major: bool) -> list:
  """Time first, batch second; or the other way round."""
  return axes if time_major else [axes[1], axes[0], *axes[2:]]


def _loaded_step(step, projected, state):
  """One step on projected inputs in buffers of their own.

  XLA for CPUs else reads them inside the loops over slots and units that use
  them, straight from the sequence and number by number, which took a fifth of a
  forward pass. It fuses nothing across a branch that it cannot decide.
  """

  def load(tree):
    undecided = jax.lax.optimization_barrier(jnp.array(True))
    return jax.lax.cond(
      undecided, lambda x: x, lambda x: jax.tree.map(jnp.zeros_like, x), tree
    )

  projected = jax.lax.platform_dependent(
    projected, cpu=load, default=lambda x: x
  )
  return step(projected, state)


def _controlled_step(step, initial_state, inputs, state):
  """One step with its reset before, and its end-of-example freeze after."""
  inputs, reset, active = inputs
  before = state
  if reset is not None:
    before = _select(reset, initial_state, state)
  outputs, after = step(inputs, before)
  if active is not None:
    after = _select(active, after, state)
    outputs = _select(active, outputs, jax.tree.map(jnp.zeros_like, outputs))
  return outputs, after


def _select(condition, on_true, on_false):
  """`jnp.where` over two nests, for a condition on their leading axes."""

  def where(x, y):
    expanded = condition.reshape(
      *condition.shape, *[1] * (jnp.ndim(y) - condition.ndim)
    )
    return jnp.where(expanded, jnp.asarray(x, y.dtype), y)

  return jax.tree.map(where, on_true, on_false)


def _tapped(step, xs, state, time_major, num_steps):
  """`step` with a tap at each large weight, and what to loop over for xs."""
  if hk.running_init():  # The weights are not there yet.
    return step, xs
  first = jax.tree.map(lambda x: x[0] if time_major else x[:, 0], xs)
  step, taps = tap_weights(step, first, state, num_steps)
  if not time_major:
    taps = jax.tree.map(lambda tap: tap.swapaxes(0, 1), taps)
  return step, (xs, taps)


def _rematerialized(step, remat):
  """`step` under `hk.remat`, with the policy asked for."""
  policy = None if remat is True else remat
  if isinstance(policy, str):
    if policy not in REMAT_POLICIES:
      raise ValueError(
        f'remat={policy!r} is no policy of jax.checkpoint_policies that '
        f'needs no arguments; expected one of {", ".join(REMAT_POLICIES)}, '
        'or a policy itself.'
      )
    policy = getattr(jax.checkpoint_policies, policy)
  # The loop itself keeps XLA from merging the recomputation with the original.
  return hk.remat(step, policy=policy, prevent_cse=False)
