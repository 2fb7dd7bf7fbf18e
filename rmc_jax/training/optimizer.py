"""Makes optimisers from a configuration: schedule, clipping, Adam, RMSProp."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import optax

from rmc_jax.checks import one_of
from rmc_jax.errors import ConfigurationError

NAMES = ('adam', 'rmsprop')
SCHEDULES = ('constant', 'exponential', 'cosine', 'linear')
MATRIX_NORMS = ('spectral', 'frobenius')


@dataclasses.dataclass
class OptimizerConfig:
  """Configuration of an optimiser; `make_optimizer` checks it.

  The authors' Nth-farthest script is learning_rate=1e-4,
  schedule='exponential', decay_rate=0.9, decay_every=10_000, floor=8e-5, and
  otherwise the defaults: Adam at 1e-4 * 0.9 ** (step / 10_000), which reaches
  its floor at step 21,180.
  """

  name: str = 'adam'  # One of NAMES.
  learning_rate: float = 1e-4  # After warm-up, before decay.
  schedule: str = 'constant'  # One of SCHEDULES.
  warmup_steps: int = 0  # Linear from 0, before any schedule.
  hold_steps: int = 0  # At learning_rate, between warm-up and decay.
  decay_rate: float = 0.9  # exponential: factor for every ...
  decay_every: int = 10_000  # ... this many updates,
  staircase: bool = False  # smoothly, or (True) in steps.
  decay_steps: int = 0  # cosine, linear: updates from first decay to floor.
  floor: float = 0.0  # The rate never goes below; not if constant.
  clip_global_norm: float | None = None  # None (flag: inf): off.
  b1: float = 0.9  # adam
  b2: float = 0.999  # adam
  eps: float = 1e-8  # adam: outside the root. TF 1 RMSProp has 1e-10.
  eps_root: float = 0.0  # adam: inside the root.
  weight_decay: float = 0.0  # adam: decoupled, on every parameter (AdamW).
  rmsprop_decay: float = 0.9
  rmsprop_momentum: float = 0.0
  rmsprop_initial_scale: float = 1.0  # As in TF 1; optax itself has 0.
  rmsprop_eps_in_sqrt: bool = True  # As in TF 1; PyTorch has it outside.


def make_optimizer(config: OptimizerConfig) -> optax.GradientTransformation:
  r"""Clips the whole gradient by its global norm, then applies Adam or RMSProp.

  Clipping: g <- g * min(1, c / |g|), |g| the Euclidean norm over all parameters
  together (Pascanu et al. 2013), before the optimiser sees g.

  Adam (Kingma and Ba 2015, algorithm 1), with m^ and v^ the bias-corrected
  averages:

  .. math:: \theta \leftarrow \theta - \eta \left(
            \hat m / (\sqrt{\hat v + \epsilon_{root}} + \epsilon)
            + \lambda \theta \right)

  TensorFlow's Adam adds epsilon to sqrt(v) instead of sqrt(v^). That equals an
  epsilon of eps / sqrt(1 - b2^t) here: 32 times as large at the first step, the
  same after some thousands. With 1e-8 it rarely matters.

  RMSProp, v <- d v + (1 - d) g^2:

  .. math:: \theta \leftarrow \theta - \eta\, g / \sqrt{v + \epsilon}

  as in TensorFlow 1, where v starts at ones instead of zeros, so that the first
  steps are smaller, not larger, than later ones. rmsprop_eps_in_sqrt=False
  divides by (sqrt(v) + epsilon), as PyTorch does; with the epsilon of 0.1 that
  agents use, the two differ a lot. Momentum accumulates whole steps, including
  the learning rate, as in TensorFlow.

  Raises:
    ConfigurationError: a field is out of range.
  """
  schedule = make_schedule(config)
  if config.name == 'adam':
    rule = optax.adamw(
      schedule,
      b1=config.b1,
      b2=config.b2,
      eps=config.eps,
      eps_root=config.eps_root,
      weight_decay=config.weight_decay,
    )
  else:
    rule = optax.rmsprop(
      schedule,
      decay=config.rmsprop_decay,
      eps=config.eps,
      initial_scale=config.rmsprop_initial_scale,
      eps_in_sqrt=config.rmsprop_eps_in_sqrt,
      momentum=config.rmsprop_momentum or None,
    )
  if config.clip_global_norm is None:
    return rule
  return optax.chain(optax.clip_by_global_norm(config.clip_global_norm), rule)


def make_schedule(config: OptimizerConfig) -> optax.Schedule:
  """Returns the learning rate as a function of the number of updates, s.

  s < warmup_steps:  learning_rate * s / warmup_steps; then learning_rate for
  hold_steps updates; then, with t = s - warmup_steps - hold_steps:
  'constant':        learning_rate
  'exponential':     max(floor, learning_rate * decay_rate ^ (t / decay_every)),
                     the exponent rounded down if `staircase`
  'cosine':          floor + (learning_rate - floor)
                     * (1 + cos(pi * min(1, t / decay_steps))) / 2
  'linear':          floor + (learning_rate - floor)
                     * (1 - min(1, t / decay_steps))
  """
  _check(config)
  rate = config.learning_rate
  if config.schedule == 'constant':
    schedule = optax.constant_schedule(rate)
  elif config.schedule == 'exponential':
    schedule = optax.exponential_decay(
      rate,
      transition_steps=config.decay_every,
      decay_rate=config.decay_rate,
      staircase=config.staircase,
      end_value=config.floor,
    )
  elif config.schedule == 'linear':
    schedule = optax.linear_schedule(rate, config.floor, config.decay_steps)
  else:
    schedule = optax.cosine_decay_schedule(
      rate, config.decay_steps, alpha=config.floor / rate
    )
  if config.hold_steps:
    hold = optax.constant_schedule(rate)
    schedule = optax.join_schedules([hold, schedule], [config.hold_steps])
  if config.warmup_steps:
    warmup = optax.linear_schedule(0.0, rate, config.warmup_steps)
    schedule = optax.join_schedules([warmup, schedule], [config.warmup_steps])
  return schedule


def clip_by_matrix_norm(
  max_norm: float, order: str = 'spectral'
) -> optax.GradientTransformation:
  r"""Scales each matrix of the gradient to a norm of at most `max_norm`.

  .. math:: G \leftarrow G \min(1, c / \|G\|) \quad \text{for each matrix}

  Source: Sukhbaatar et al. 2015, section 4.2, whose code takes the spectral
  norm, the largest singular value; several ports take the Frobenius norm.

  Args:
    max_norm: c.
    order: one of MATRIX_NORMS.

  Raises:
    ValueError: an unknown order; from `update`, a leaf is not a matrix.
  """
  one_of('order', order, MATRIX_NORMS)

  def norm(gradient):
    if gradient.ndim != 2:
      raise ValueError(
        'clip_by_matrix_norm needs matrices. Got a gradient of shape '
        f'{gradient.shape}.'
      )
    frobenius = jnp.sqrt((gradient**2).sum())
    if order == 'frobenius':
      return frobenius
    # At most the Frobenius norm, so often there is nothing to clip.
    return jax.lax.cond(
      frobenius > max_norm, _spectral_norm, lambda _: frobenius, gradient
    )

  def clip(gradient):
    return gradient * (max_norm / jnp.maximum(norm(gradient), max_norm))

  return optax.stateless(lambda updates, params: jax.tree.map(clip, updates))


def _spectral_norm(matrix: jax.Array) -> jax.Array:
  """Returns the largest singular value."""
  # The smaller of the two Gram matrices.
  if matrix.shape[0] < matrix.shape[1]:
    matrix = matrix.T
  return jnp.sqrt(_largest_eigenvalue(matrix.T @ matrix))


def _largest_eigenvalue(matrix: jax.Array) -> jax.Array:
  """Returns the largest eigenvalue of a positive semidefinite matrix.

  A high power of the matrix, with trace 1, weights the eigenvalues, so the
  result is at most slightly too small: by less than 1e-3 of it for up to a
  thousand eigenvalues, whatever they are. Not `jnp.linalg.eigvalsh`: a LAPACK
  call within `pmap` can deadlock on a CPU.
  """
  power = matrix
  for _ in range(13):
    power /= jnp.maximum(jnp.trace(power), 1e-30)
    power = jnp.matmul(power, power, precision='highest')
  power /= jnp.maximum(jnp.trace(power), 1e-30)
  return (matrix * power).sum()


def _check(config: OptimizerConfig) -> None:
  clip = config.clip_global_norm
  adam = config.name == 'adam'
  exponential = config.schedule == 'exponential'
  to_floor = config.schedule in ('cosine', 'linear')
  # Adam would divide 0 by 0 for a gradient of 0.
  has_eps = not adam or config.eps > 0 or config.eps_root > 0
  decays = adam or config.weight_decay == 0
  checks = [
    ('name', config.name in NAMES, f'one of {NAMES}'),
    ('schedule', config.schedule in SCHEDULES, f'one of {SCHEDULES}'),
    ('learning_rate', 0 < config.learning_rate < math.inf, 'positive'),
    ('decay_rate', not exponential or 0 < config.decay_rate < 1, 'in (0, 1)'),
    ('decay_every', not exponential or config.decay_every > 0, 'positive'),
    ('decay_steps', not to_floor or config.decay_steps > 0, 'positive'),
    (
      'floor',
      0 <= config.floor <= config.learning_rate,
      f'from 0 to the learning rate, {config.learning_rate}',
    ),
    (
      'floor',
      config.floor == 0 or config.schedule != 'constant',
      'left at 0 with a constant schedule',
    ),
    ('clip_global_norm', clip is None or clip > 0, 'positive, or None'),
  ]
  for name in (
    'warmup_steps', 'hold_steps', 'eps', 'eps_root', 'weight_decay',
    'rmsprop_initial_scale',
  ):  # fmt: skip
    checks.append((name, getattr(config, name) >= 0, '0 or more'))
  for name in ('b1', 'b2', 'rmsprop_decay', 'rmsprop_momentum'):
    checks.append((name, 0 <= getattr(config, name) < 1, 'in [0, 1)'))
  checks.append(('eps', has_eps, 'positive if eps_root is 0'))
  checks.append(('weight_decay', decays, "left at 0 unless name is 'adam'"))
  for name, holds, allowed in checks:
    if not holds:
      raise ConfigurationError(
        f'optimizer.{name} must be {allowed}. Got: {getattr(config, name)!r}.'
      )
