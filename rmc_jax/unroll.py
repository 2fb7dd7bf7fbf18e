"""Unrolls a recurrent core over a sequence."""

from collections.abc import Callable
import functools
from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp

from rmc_jax.cores import AttendingCore
from rmc_jax.cores import ProjectedCore
from rmc_jax.cores.deferred_gradients import add_probes
from rmc_jax.types import Array
from rmc_jax.types import ArrayTree

# The members of jax.checkpoint_policies that need no arguments.
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
  `hk.dynamic_unroll(core, inputs, state)`. The input part of a `ProjectedCore`
  is computed for all steps at once, before the loop; any other core, including
  `hk.DeepRNN` and `hk.ResetCore`, runs unchanged.

  Args:
    core: a function `(inputs, state) -> (outputs, next_state)`, usually an
      `hk.RNNCore`.
    inputs: a nest of [T, B, ...] arrays ([T, ...] for an unbatched state). A
      `ProjectedCore` takes one array and flattens its axes after B.
    state: the state before the first step.
    time_major: if False, `inputs`, `reset`, outputs and the states of
      `return_all_states` have the B axis before the T axis.
    treat_input_as_matrix: attend to each row of [T, B, I, ...] inputs; only for
      an `AttendingCore`.
    reset: [T, B] booleans, [T] unbatched: where True, the step starts from
      `core.initial_state`, for example at the start of an episode.
    lengths: [B] integers, () unbatched: example b has `lengths[b]` steps. After
      them its state stays constant and its outputs are zero, like the
      `sequence_length` of TensorFlow's `dynamic_rnn`.
    remat: what the backward pass recomputes to save memory. None: everything
      except matrix products ('dots_saveable') for a `ProjectedCore`, which
      costs no time, and nothing for other cores. False: nothing. True: each
      step from its state. Or a policy of `jax.checkpoint_policies`; those in
      REMAT_POLICIES also by name.
    unroll: steps in one iteration of the loop, as in `hk.dynamic_unroll`.
    defer_weight_gradients: compute the gradients of large weights once, after
      the backward loop; only for a `ProjectedCore` with `remat` None or False.
      The numbers differ by rounding. Must be False for forward-mode
      differentiation (`jax.jvp`, `jax.jacfwd`).
    return_all_states: return the state after every step, not only the last.
    return_trace: return `(outputs, StepTrace)` instead of the outputs, with the
      leading axes of `outputs`; only for an `AttendingCore`.

  Returns:
    The outputs, a nest of [T, B, ...] arrays, and the last state (or all).

  Raises:
    TypeError: `reset` is not boolean or `lengths` not integer.
    ValueError: shapes do not match, or the core does not support an option.
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
        f'{option}=True needs an AttendingCore, such as '
        f'rmc_jax.RelationalMemory. Got: {type(core).__name__}.'
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
    state = core.upcast_state(state)
    step = core.step
    if return_trace and isinstance(core, AttendingCore):
      step = core.trace_step
    step = functools.partial(_step_on_loaded_inputs, step)
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
        f'reset needs a core with initial_state(). Got: {type(core).__name__}.'
      )
    initial_state = make_initial_state(*batch_shape or (None,))
  step = functools.partial(_controlled_step, step, initial_state)
  xs = inputs, reset, active
  if projected and defer_weight_gradients and not remat:
    step, xs = _with_probes(step, xs, state, time_major, num_steps)
  if remat is None and projected:
    remat = 'dots_saveable'
  if remat and not hk.running_init():  # hk.remat would reorder the parameters.
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
  """Returns [T, B] or [T] after checking that all arguments agree."""
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
  else:  # Other cores may use the axes after time as they like.
    batch_rank = 0 if time_major else 1
  if batch_rank not in (0, 1):
    raise ValueError(
      'reset must be [T, B] or, unbatched, [T], and lengths [B] or (). '
      f'Got shapes {_shape(reset)} and {_shape(lengths)}.'
    )
  if not time_major and batch_rank == 0:
    raise ValueError(
      'time_major=False needs a batch axis before the time axis. Got an '
      'unbatched state.'
    )
  shapes = {jnp.shape(leaf)[: 1 + batch_rank] for leaf in leaves}
  if len(shapes) > 1 or any(len(shape) < 1 + batch_rank for shape in shapes):
    raise ValueError(
      'All inputs must start with the same time and batch axes. Got: '
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
  """Raises if an optional array has another shape or dtype."""
  if value is None:
    return
  if jnp.shape(value) != tuple(shape):
    raise ValueError(
      f'{name} has shape {jnp.shape(value)}, expected {tuple(shape)}, like the '
      'inputs.'
    )
  if not jnp.issubdtype(jnp.result_type(value), dtype):
    raise TypeError(f'{name} is {jnp.result_type(value)}, expected {remedy}.')


def _shape(value) -> tuple[int, ...] | None:
  return None if value is None else jnp.shape(value)


def _swap(axes: list, time_major: bool) -> list:
  """Swaps the first two axes unless `time_major`."""
  return axes if time_major else [axes[1], axes[0], *axes[2:]]


@jax.custom_jvp
def _load(projected):
  """Copies the projected inputs of a step to buffers of their own, on CPUs.

  XLA for CPUs otherwise fuses the read of the sequence into the loops over
  slots and units that use it, which took a fifth of a forward pass. It cannot
  fuse across a branch whose condition is unknown at compile time.
  """

  def copy(tree):
    true = jax.lax.optimization_barrier(jnp.array(True))
    return jax.lax.cond(
      true, lambda x: x, lambda x: jax.tree.map(jnp.zeros_like, x), tree
    )

  return jax.lax.platform_dependent(projected, cpu=copy, default=lambda x: x)


@_load.defjvp
def _load_jvp(primals, tangents):
  # The derivative is the identity; that of the branch would be another branch.
  return _load(*primals), tangents[0]


def _step_on_loaded_inputs(step, projected, state):
  return step(_load(projected), state)


def _controlled_step(step, initial_state, inputs, state):
  """Runs a step after a reset, and keeps the state of ended examples."""
  inputs, reset, active = inputs
  before = state
  if reset is not None:
    before = select(reset, initial_state, state)
  outputs, after = step(inputs, before)
  if active is not None:
    after = select(active, after, state)
    outputs = select(active, outputs, jax.tree.map(jnp.zeros_like, outputs))
  return outputs, after


def select(
  condition: Array, on_true: ArrayTree, on_false: ArrayTree
) -> ArrayTree:
  """Applies `jnp.where` to two nests, in the dtypes of `on_false`.

  The axes of `condition` are the leading axes of the arrays.
  """

  def where(x, y):
    expanded = condition.reshape(
      *condition.shape, *[1] * (jnp.ndim(y) - condition.ndim)
    )
    return jnp.where(expanded, jnp.asarray(x, y.dtype), y)

  return jax.tree.map(where, on_true, on_false)


def _with_probes(step, xs, state, time_major, num_steps):
  """Adds weight gradient probes to `step` and to the sequences `xs`."""
  if hk.running_init():  # The weights do not exist yet.
    return step, xs
  first = jax.tree.map(lambda x: x[0] if time_major else x[:, 0], xs)
  step, probes = add_probes(step, first, state, num_steps)
  if not time_major:
    probes = jax.tree.map(lambda probe: probe.swapaxes(0, 1), probes)
  return step, (xs, probes)


def _rematerialized(step, remat):
  """Wraps `step` in `hk.remat` with a policy."""
  policy = None if remat is True else remat
  if isinstance(policy, str):
    if policy not in REMAT_POLICIES:
      raise ValueError(
        'remat must be a bool, a policy or one of '
        f'{", ".join(REMAT_POLICIES)}. Got: {policy!r}.'
      )
    policy = getattr(jax.checkpoint_policies, policy)
  # In a loop, XLA cannot merge the recomputation with the original.
  return hk.remat(step, policy=policy, prevent_cse=False)
