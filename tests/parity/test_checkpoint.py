"""Tests rmc_jax/parity/checkpoint.py, except for what needs TensorFlow."""

import jax.numpy as jnp
import numpy as np
import pytest

from rmc_jax.parity import checkpoint

PARAMS = {
  'agent/core/input': {'w': np.ones([2, 3], np.float32), 'b': np.zeros(3)},
  'agent/core/mlp/linear_0': {'w': np.arange(7)},
}


def test_params_survive_a_round_trip(tmp_path):
  path = tmp_path / 'params.npz'
  checkpoint.save_params(path, PARAMS)
  loaded = checkpoint.load_params(path)
  assert list(loaded) == list(PARAMS)
  for module, parameters in PARAMS.items():
    assert list(loaded[module]) == list(parameters)
    for name, value in parameters.items():
      assert loaded[module][name].dtype == value.dtype
      np.testing.assert_array_equal(loaded[module][name], value)


def test_bfloat16_is_refused_and_nothing_written(tmp_path):
  params = {'core': {'w': jnp.ones(3, jnp.bfloat16)}}
  with pytest.raises(TypeError, match=r"'core/w': 'bfloat16'.*astype"):
    checkpoint.save_params(tmp_path / 'params.npz', params)
  assert not list(tmp_path.iterdir())


def test_missing_checkpoint_is_an_error(tmp_path):
  with pytest.raises(FileNotFoundError, match=r'model\.ckpt-7\.index'):
    checkpoint.read_checkpoint(tmp_path / 'model.ckpt-7')


def test_missing_folder_is_an_error(tmp_path):
  with pytest.raises(FileNotFoundError, match=r'no folder .*missing'):
    checkpoint.write_checkpoint(tmp_path / 'missing/model.ckpt', {})
