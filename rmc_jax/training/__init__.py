"""Training under pmap; it receives functions and knows no task."""

from rmc_jax.training.ensemble import create_ensemble
from rmc_jax.training.ensemble import get_member
from rmc_jax.training.ensemble import make_ensemble_update
from rmc_jax.training.ensemble import map_members
from rmc_jax.training.evaluate import make_evaluate
from rmc_jax.training.evaluate import make_evaluate_generated
from rmc_jax.training.nonfinite import NonfiniteConfig
from rmc_jax.training.optimizer import clip_by_matrix_norm
from rmc_jax.training.optimizer import make_optimizer
from rmc_jax.training.optimizer import make_schedule
from rmc_jax.training.optimizer import MATRIX_NORMS
from rmc_jax.training.optimizer import OptimizerConfig
from rmc_jax.training.parallel import process_rows
from rmc_jax.training.run import Experiment
from rmc_jax.training.run import FunctionSource
from rmc_jax.training.run import MAY_CHANGE_ON_RESUME
from rmc_jax.training.run import may_change_on_resume
from rmc_jax.training.run import RunConfig
from rmc_jax.training.run import Source
from rmc_jax.training.runner import Runner
from rmc_jax.training.runner import train
from rmc_jax.training.state import count_parameters
from rmc_jax.training.state import create_state
from rmc_jax.training.state import TrainState
from rmc_jax.training.update import LossAux
from rmc_jax.training.update import make_update
from rmc_jax.training.update import per_example

__all__ = [
  'MATRIX_NORMS',
  'MAY_CHANGE_ON_RESUME',
  'Experiment',
  'FunctionSource',
  'LossAux',
  'NonfiniteConfig',
  'OptimizerConfig',
  'RunConfig',
  'Runner',
  'Source',
  'TrainState',
  'clip_by_matrix_norm',
  'count_parameters',
  'create_ensemble',
  'create_state',
  'get_member',
  'make_ensemble_update',
  'make_evaluate',
  'make_evaluate_generated',
  'make_optimizer',
  'make_schedule',
  'make_update',
  'map_members',
  'may_change_on_resume',
  'per_example',
  'process_rows',
  'train',
]
