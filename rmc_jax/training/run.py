"""The definition of a run: intervals, functions and data source."""

from collections.abc import Callable
import contextlib
import dataclasses
from typing import Any
from typing import NamedTuple

import jax

from rmc_jax.checks import positive_int
from rmc_jax.metrics import SumsAndCounts
from rmc_jax.training import parallel
from rmc_jax.training.nonfinite import NonfiniteConfig
from rmc_jax.training.state import TrainState
from rmc_jax.types import Array
from rmc_jax.types import ArrayTree

MAY_CHANGE_ON_RESUME = 'may_change_on_resume'


def may_change_on_resume(**arguments: Any) -> Any:
  """Returns a `dataclasses.field` that a resumed run may change.

  For lengths, intervals and places of files, which do not affect what is
  trained. A field that holds a dataclass covers all of its fields.
  """
  return dataclasses.field(**arguments, metadata={MAY_CHANGE_ON_RESUME: True})


@dataclasses.dataclass
class RunConfig:
  """Length, intervals and seed of a run; part of every experiment's `Config`.

  Intervals are in updates. They are due at the first call that ends on or after
  a multiple, and at the end of the run. That all devices hold the same state is
  checked every `check_replicas_every` and before each checkpoint.
  """

  # Of the whole run, earlier starts included.
  num_steps: int = may_change_on_resume(default=1_000_000)
  seed: int = 0  # Of parameters, data and dropout.
  updates_per_call: int = 1
  log_every: int = may_change_on_resume(default=100)
  eval_every: int = may_change_on_resume(default=1000)
  checkpoint_every: int = may_change_on_resume(default=1000)
  keep_checkpoints: int = may_change_on_resume(default=3)
  check_replicas_every: int = may_change_on_resume(default=1000)
  nonfinite: NonfiniteConfig = may_change_on_resume(
    default_factory=NonfiniteConfig
  )

  def validate(self) -> None:
    """Raises ValueError for a number that is out of range."""
    for field in dataclasses.fields(self):
      if field.name not in ('seed', 'nonfinite'):
        positive_int(field.name, getattr(self, field.name))
    if not 0 <= self.seed < 2**32:  # JAX would drop the higher bits.
      raise ValueError(
        f'run.seed must be at least 0 and less than 2**32. Got: {self.seed}.'
      )
    self.nonfinite.validate()

  def check_host_batches(self) -> None:
    """Raises ValueError if a call has several updates, of the same batch."""
    if self.updates_per_call != 1:
      raise ValueError(
        'run.updates_per_call must be 1: batches come from the host. '
        f'Got: {self.updates_per_call}.'
      )

  def make_keys(self) -> Array:
    """Returns [4] keys: of parameters, training, evaluation and figures."""
    return jax.random.split(jax.random.key(self.seed), 5)[1:]


class Source(contextlib.AbstractContextManager):
  """Batches from the host: a context manager, entered for the whole training.

  Only a `reproducible` source, whose `batch` is a function of the step alone,
  lets a resumed run continue bit for bit.
  """

  reproducible: bool = True

  def __exit__(self, *exception) -> None:
    pass

  def batch(self, step: int) -> ArrayTree:
    """Returns this process's examples of update `step`, leaves [B, ...]."""
    raise NotImplementedError

  def set_params(self, params: ArrayTree) -> None:
    """Receives the parameters before the first batch and after every call.

    Their buffers are deleted by the next call; copy what is kept.
    """


class FunctionSource(Source):
  """A reproducible source: a function from the step to the batch."""

  def __init__(self, batch_fn: Callable[[int], ArrayTree]):
    self.batch = batch_fn  # type: ignore[method-assign]


def load_batch(
  source: Source | None, step: int, devices: parallel.Devices
) -> ArrayTree | None:
  """Returns the batch of `step`, on the devices; None without a source."""
  if source is None:
    return None
  try:
    return parallel.split_batch(source.batch(step), devices)
  except Exception as error:
    error.add_note(f'This was the batch of step {step}.')
    raise


class Experiment(NamedTuple):
  """The functions of an experiment.

  Attributes:
    init: () -> the state of step 0. Must be traceable: it is compiled by
      `jax.jit`, or only traced if there is a checkpoint.
    update: (state, batch) -> (state, metrics), see `update.make_update`. The
      state is donated.
    evaluate: state -> metrics, see `evaluate.make_evaluate`.
    source: batches from the host; None if `update` makes its own.
    on_evaluation: (state, means) -> state, called after each evaluation with
      its means, for schedules that follow the validation loss. Must be
      deterministic and the same in every process.
  """

  init: Callable[[], TrainState]
  update: Callable[..., tuple[TrainState, SumsAndCounts]]
  evaluate: Callable[[TrainState], SumsAndCounts] | None = None
  source: Source | None = None
  on_evaluation: Callable[[TrainState, dict[str, float]], TrainState] | None = (
    None
  )
