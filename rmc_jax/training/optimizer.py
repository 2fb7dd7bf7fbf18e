"""Optimisers from plain numbers: schedule, clipping, Adam or RMSProp."""

import dataclasses
import math

import optax

from rmc_jax.errors import ConfigurationError

NAMES = ('adam', 'rmsprop')
SCHEDULES = ('constant', 'exponential', 'cosine')


@dataclasses.dataclass
class OptimizerConfig:
  """The numbers of an optimiser; `make_optimizer` checks them.

  The authors' Nth-farthest script is learning_rate=1e-4,
  schedule='exponential', decay_rate=0.9, decay_every=10_000, floor=8e-5, all
  else as it stands here: Adam at 1e-4 * 0.9 ** (step / 10_000), at its floor
  from step 21,180 on.
  """

  name: str = 'adam'  # One of NAMES.
  learning_rate: float = 1e-4  # Where warm-up ends and decay begins.
  schedule: str = 'constant'  # One of SCHEDULES.
  warmup_steps: int = 0  # Linear from 0, before any schedule.
  hold_steps: int = 0  # At learning_rate, between warm-up and decay.
  decay_rate: float = 0.9  # exponential: this factor ...
  decay_every: int = 10_000  # ... over this many updates from then on,
  staircase: bool = False  # smoothly, or (True) all at once at their end.
  decay_steps: int = 0  # cosine: updates from the first decay to the floor.
  floor: float = 0.0  # exponential, cosine: the rate never goes below.
  clip_global_norm: float | None = None  # None (a flag: inf): no clipping.
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

  Adam (Kingma and Ba 2015, algorithm 1), with m^ and v^ the averages freed of
  their bias:

  .. math:: \theta \leftarrow \theta - \eta \left(
            \hat m / (\sqrt{\hat v + \epsilon_{root}} + \epsilon)
            + \lambda \theta \right)

  TensorFlow's Adam adds its epsilon to sqrt(v) instead of sqrt(v^): equal to an
  epsilon of eps / sqrt(1 - b2^t) here, 32 times as much at the first step and
  the same after some thousands. With 1e-8 it seldom shows.

  RMSProp, v <- d v + (1 - d) g^2:

  .. math:: \theta \leftarrow \theta - \eta\, g / \sqrt{v + \epsilon}

  which is TensorFlow 1's, whose v starts at ones and not at zeros: the first
  steps are then smaller, not larger, than the later ones.
  rmsprop_eps_in_sqrt=False divides by (sqrt(v) + epsilon), as PyTorch does.
  With epsilon 0.1, as agents have it, the two differ much. Momentum, if not 0,
  accumulates whole steps, learning rate included, as in TensorFlow.

  Raises:
    ConfigurationError: a field out of range; the message has its name, its
      value and what is allowed.
  """
  _check(config)
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
  """The learning rate as a function of the updates made before, s.

  s < warmup_steps:  learning_rate * s / warmup_steps; then learning_rate for
  hold_steps updates; then, t = s - warmup_steps - hold_steps:
  'constant':        learning_rate
  'exponential':     max(floor, learning_rate * decay_rate ^ (t / decay_every)),
                     the exponent rounded down if `staircase`
  'cosine':          floor + (learning_rate - floor)
                     * (1 + cos(pi * min(1, t / decay_steps))) / 2
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


def _check(config: OptimizerConfig) -> None:
  """Refuses what would train something other than the fields say."""
  clip = config.clip_global_norm
  adam, rmsprop = config.name == 'adam', config.name == 'rmsprop'
  exponential = config.schedule == 'exponential'
  cosine = config.schedule == 'cosine'
  for field, holds, allowed in (
    ('name', adam or rmsprop, f'one of {NAMES}'),
    ('schedule', config.schedule in SCHEDULES, f'one of {SCHEDULES}'),
    ('learning_rate', 0 < config.learning_rate < math.inf, 'positive'),
    ('warmup_steps', config.warmup_steps >= 0, '0 or more'),
    ('hold_steps', config.hold_steps >= 0, '0 or more'),
    ('decay_rate', not exponential or 0 < config.decay_rate < 1, 'in (0, 1)'),
    ('decay_every', not exponential or config.decay_every > 0, 'positive'),
    ('decay_steps', not cosine or config.decay_steps > 0, 'positive'),
    (
      'floor',
      0 <= config.floor <= config.learning_rate,
      f'from 0 to the learning rate, {config.learning_rate}',
    ),
    (
      'floor',
      config.floor == 0 or exponential or cosine,
      'left at 0 with a constant schedule',
    ),
    ('clip_global_norm', clip is None or clip > 0, 'positive, or None'),
    ('b1', 0 <= config.b1 < 1, 'in [0, 1)'),
    ('b2', 0 <= config.b2 < 1, 'in [0, 1)'),
    ('eps', config.eps >= 0, '0 or more'),
    ('eps_root', config.eps_root >= 0, '0 or more'),
    (
      'eps',
      not adam or config.eps > 0 or config.eps_root > 0,
      'positive where eps_root is 0',  # 0 / 0 for a gradient of 0.
    ),
    ('weight_decay', config.weight_decay >= 0, '0 or more'),
    (
      'weight_decay',
      config.weight_decay == 0 or adam,
      "left at 0 unless name is 'adam'",
    ),
    ('rmsprop_decay', 0 <= config.rmsprop_decay < 1, 'in [0, 1)'),
    ('rmsprop_momentum', 0 <= config.rmsprop_momentum < 1, 'in [0, 1)'),
    ('rmsprop_initial_scale', config.rmsprop_initial_scale >= 0, '0 or more'),
  ):
    if not holds:
      raise ConfigurationError(
        f'optimizer.{field} must be {allowed}; got {getattr(config, field)!r}.'
      )
