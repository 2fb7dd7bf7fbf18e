"""SGD with a rate that falls when the validation loss does not.

Sukhbaatar et al. 2015, section 5.1, and the authors' code. The rate and the
loss that the next one is compared with are in the state of the optimiser, so
that checkpoints hold them.
"""

import jax.numpy as jnp
import optax

from rmc_jax.training import parallel
from rmc_jax.training import TrainState


def make_optimizer(
  learning_rate: float, clip_norm: float
) -> optax.GradientTransformation:
  """Clips the norm of the whole gradient, then SGD."""
  return optax.chain(
    optax.clip_by_global_norm(clip_norm),
    _sgd(learning_rate=learning_rate, previous_loss=jnp.inf),
  )


@optax.inject_hyperparams
def _sgd(learning_rate, previous_loss):
  del previous_loss  # Only a place in the state.
  return optax.sgd(learning_rate)


def learning_rate(state: TrainState) -> float:
  """Returns the rate of the next update."""
  return float(optax.tree.get(state.opt_state, 'learning_rate'))


def end_epoch(
  state: TrainState,
  loss: float,
  *,
  factor: float,
  improvement: float,
  final_rate: float,
) -> TrainState:
  """Divides the rate unless the loss has fallen enough.

  Args:
    state: on the devices.
    loss: the validation loss after the epoch.
    factor: that the rate is divided by.
    improvement: the largest share of the previous loss that keeps the rate.
    final_rate: a rate below it becomes 0, which ends the training of the
      parameters.
  """
  rate = learning_rate(state)
  if loss > improvement * float(
    optax.tree.get(state.opt_state, 'previous_loss')
  ):
    rate /= factor
  if rate < final_rate:
    rate = 0.0
  values = parallel.replicate(
    {'learning_rate': jnp.float32(rate), 'previous_loss': jnp.float32(loss)}
  )
  opt_state = optax.tree.set(state.opt_state, **values)
  return state._replace(opt_state=opt_state)
