"""Linear start: members train without the softmax of their hops at first.

Sukhbaatar et al. 2015, section 4.2: until the validation loss stops falling.
The authors' code instead ends it after a fixed number of epochs. The schedule
of the learning rate begins when the softmax is back.
"""

import jax.numpy as jnp
import optax

from rmc_jax.errors import ConfigurationError
from rmc_jax.training import parallel
from rmc_jax.training import TrainState
from rmc_jax.types import Array

KINDS = ('none', 'fixed', 'validation')


def check_interval(kind: str, eval_every: int, epoch: int) -> None:
  """Checks that evaluations, where a start may end, are those of epochs."""
  if kind != 'none' and eval_every != epoch:
    raise ConfigurationError(
      f'run.eval_every must be {epoch}, the updates of an epoch, with a linear '
      f'start, which is checked at evaluations. Got: {eval_every}.'
    )


def initial_state(kind: str) -> dict[str, Array]:
  """Returns the network state of one member."""
  return {
    'linear': jnp.array(kind != 'none'),
    'epochs': jnp.array(0),
    'best_loss': jnp.array(jnp.inf),
  }


def end_epoch(
  kind: str, num_epochs: int, state: TrainState, loss: list[float]
) -> TrainState:
  """Gives members their softmax back, once it is time.

  Args:
    kind: one of KINDS.
    num_epochs: the length of a 'fixed' start.
    state: of the ensemble.
    loss: [members] the validation losses after the epoch.
  """
  members = state.carry
  before = members.network_state
  # [local devices, members on each], like the state.
  losses = parallel.shard_rows(jnp.asarray(loss, jnp.float32))
  epochs = before['epochs'] + 1
  stays = losses < before['best_loss']
  if kind == 'fixed':
    stays = epochs < num_epochs
  network_state = {
    'linear': before['linear'] & stays,
    'epochs': epochs,
    'best_loss': jnp.minimum(losses, before['best_loss']),
  }
  count = optax.tree.get(members.opt_state, 'count')
  opt_state = optax.tree.set(
    members.opt_state, count=jnp.where(before['linear'], 0, count)
  )
  return state._replace(
    carry=members._replace(network_state=network_state, opt_state=opt_state)
  )
