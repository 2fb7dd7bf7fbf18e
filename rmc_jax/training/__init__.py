"""Training under pmap; it receives functions and knows no task."""

from rmc_jax.training.evaluate import make_evaluate
from rmc_jax.training.evaluate import make_evaluate_generated
from rmc_jax.training.loop import train
from rmc_jax.training.nonfinite import NonfiniteConfig
from rmc_jax.training.optimizer import make_optimizer
from rmc_jax.training.optimizer import make_schedule
from rmc_jax.training.optimizer import OptimizerConfig
from rmc_jax.training.state import count_parameters
from rmc_jax.training.state import create_state
from rmc_jax.training.state import TrainState
from rmc_jax.training.update import LossAux
from rmc_jax.training.update import make_update

__all__ = [
  'LossAux',
  'NonfiniteConfig',
  'OptimizerConfig',
  'TrainState',
  'count_parameters',
  'create_state',
  'make_evaluate',
  'make_evaluate_generated',
  'make_optimizer',
  'make_schedule',
  'make_update',
  'train',
]
