"""Tests rmc_jax/training/run.py."""

import dataclasses

import numpy as np
import pytest

from rmc_jax.training.run import FunctionSource
from rmc_jax.training.run import load_batch
from rmc_jax.training.run import MAY_CHANGE_ON_RESUME
from rmc_jax.training.run import RunConfig
from rmc_jax.training.run import Source


def test_length_and_intervals_may_change_on_resume_and_the_seed_may_not():
  fixed = {
    field.name
    for field in dataclasses.fields(RunConfig)
    if not field.metadata.get(MAY_CHANGE_ON_RESUME)
  }
  assert fixed == {'seed', 'updates_per_call'}


@pytest.mark.parametrize(
  'name', ['num_steps', 'updates_per_call', 'log_every', 'keep_checkpoints']
)
def test_numbers_below_one_are_refused(name):
  with pytest.raises(ValueError, match=f'{name} must .* Got: 0'):
    RunConfig(**{name: 0}).validate()
  RunConfig(seed=0).validate()


@pytest.mark.parametrize('seed', [-1, 2**32])
def test_seeds_beyond_32_bits_are_refused(seed):
  with pytest.raises(ValueError, match=rf'seed must .* Got: {seed}\.'):
    RunConfig(seed=seed).validate()
  RunConfig(seed=2**32 - 1).make_keys()


def test_calls_of_several_updates_need_batches_from_the_device():
  RunConfig().check_host_batches()
  with pytest.raises(ValueError, match='updates_per_call must be 1.* Got: 3'):
    RunConfig(updates_per_call=3).check_host_batches()


def test_batches_of_a_source_are_split_over_the_devices():
  source = FunctionSource(lambda step: {'x': np.full((8, 3), step)})
  assert source.reproducible
  with source:
    batch = load_batch(source, 5, None)
  assert batch['x'].shape == (4, 2, 3)
  assert (batch['x'] == 5).all()
  assert load_batch(None, 5, None) is None


def test_errors_of_a_source_name_the_step():
  def fail(step):
    raise OSError('record is damaged')

  with pytest.raises(OSError, match='damaged') as error:
    load_batch(FunctionSource(fail), 7, None)
  assert 'step 7' in error.value.__notes__[0]


def test_base_class_has_no_batches():
  with Source() as source, pytest.raises(NotImplementedError):
    source.batch(0)
