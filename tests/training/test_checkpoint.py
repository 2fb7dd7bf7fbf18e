"""Tests rmc_jax/training/checkpoint.py."""

import resource
import shutil
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest

from rmc_jax.errors import ConfigurationError
from rmc_jax.training import manifest
from rmc_jax.training.checkpoint import Checkpointer
from rmc_jax.training.checkpoint import NoGoodCheckpoint
from rmc_jax.training.checkpoint import SaveFailed
from rmc_jax.training.checkpoint import StructureMismatch
from rmc_jax.training.parallel import place_state
from rmc_jax.training.state import create_state


def make_state(step: int = 0, width: int = 5, key=None, optimizer=None):
  """Returns a small state with every dtype, whose values depend on the step."""
  key = jax.random.key(7) if key is None else key
  params = {
    'memory/qkv': {'w': jnp.full((3, width), step + 0.5)},
    'half': jnp.full((2,), step, jnp.bfloat16),
    'scalar': jnp.asarray(step, jnp.float32),
  }
  network_state = {
    'flags': jnp.array([True, False]),
    'nothing': jnp.zeros((0, 4)),
    'empty': {},
  }
  state = create_state(
    params, network_state, optimizer or optax.adam(1e-3), key
  )
  return state._replace(step=jnp.asarray(step, jnp.int32))


def assert_same(restored, state):
  assert jax.tree.structure(restored) == jax.tree.structure(state)
  for got, wanted in zip(
    jax.tree.leaves(restored), jax.tree.leaves(state), strict=True
  ):
    assert got.dtype == wanted.dtype
    assert got.shape == wanted.shape
    if jnp.issubdtype(wanted.dtype, jax.dtypes.prng_key):
      got, wanted = jax.random.key_data(got), jax.random.key_data(wanted)
    np.testing.assert_array_equal(np.asarray(got), np.asarray(wanted))


def save_steps(directory, *steps, keep=3):
  with Checkpointer(directory, keep=keep) as checkpointer:
    for step in steps:
      checkpointer.save(step, make_state(step))


def restore(directory, target=None):
  with Checkpointer(directory) as checkpointer:
    return checkpointer.restore(jax.eval_shape(target or make_state))


def step_directories(directory):
  return sorted(int(p.name) for p in directory.iterdir() if p.name.isdigit())


def poll_until(checkpointer, done):
  for _ in range(12_000):
    if done():
      return
    checkpointer.poll()
    time.sleep(0.01)
  pytest.fail('Nothing happened in two minutes.')


def files_of(step_directory):
  return [path for path in step_directory.rglob('*') if path.is_file()]


@pytest.mark.parametrize(
  'key',
  [
    lambda: jax.random.key(7),
    lambda: jax.random.PRNGKey(7),
    lambda: jax.random.key(7, impl='rbg'),
  ],
  ids=['typed', 'old', 'typed_rbg'],
)
def test_restore_is_bit_exact(tmp_path, key):
  state = make_state(4, key=key())
  with Checkpointer(tmp_path) as checkpointer:
    checkpointer.save(4, state)
  step, restored, _ = restore(tmp_path, lambda: make_state(key=key()))
  assert step == 4
  assert_same(restored, state)
  np.testing.assert_array_equal(
    jax.random.normal(restored.key, (3,)), jax.random.normal(state.key, (3,))
  )


@pytest.mark.parametrize(('saved_on', 'restored_on'), [(4, 1), (1, 4)])
def test_restore_to_another_number_of_devices(tmp_path, saved_on, restored_on):
  placed = place_state(make_state(2), jax.devices()[:saved_on])
  with Checkpointer(tmp_path) as checkpointer:
    checkpointer.save(2, placed)
  restored = restore(tmp_path).state
  again = place_state(restored, jax.devices()[:restored_on])
  assert len(again.step.devices()) == restored_on
  assert_same(again, make_state(2))


def test_restore_returns_none_without_checkpoints(tmp_path):
  assert restore(tmp_path) is None


def test_buffers_may_be_donated_during_a_save(tmp_path):
  big = jnp.arange(1_000_000, dtype=jnp.float32)
  overwrite = jax.jit(lambda x: x * 0 - 1, donate_argnums=0)
  wanted = np.array(big)
  with Checkpointer(tmp_path) as checkpointer:
    checkpointer.save(1, {'big': big})
    for _ in range(3):
      big = overwrite(big)
    big.block_until_ready()
    checkpointer.wait()
    restored = checkpointer.restore({'big': big})
  np.testing.assert_array_equal(restored.state['big'], wanted)


def test_keeps_the_newest_steps(tmp_path):
  save_steps(tmp_path, 1, 2, 3, 4, keep=2)
  assert step_directories(tmp_path) == [3, 4]
  save_steps(tmp_path, 5, keep=2)  # Counts the steps of an earlier start.
  assert step_directories(tmp_path) == [4, 5]


def test_manifest_of_an_old_step_is_removed_first(tmp_path, monkeypatch):
  # So a folder with a manifest has all of its files, also for copies.
  delete, manifests = ocp.CheckpointManager.delete, []

  def recorded(manager, step):
    manifests.append((step, (tmp_path / str(step) / 'manifest.json').exists()))
    delete(manager, step)

  monkeypatch.setattr(ocp.CheckpointManager, 'delete', recorded)
  save_steps(tmp_path, 1, 2, 3, keep=1)
  assert manifests == [(1, False), (2, False)]
  assert step_directories(tmp_path) == [3]


def test_step_is_saved_once(tmp_path):
  with Checkpointer(tmp_path) as checkpointer:
    checkpointer.save(1, make_state(1))
    checkpointer.save(1, make_state(9))
  assert_same(restore(tmp_path)[1], make_state(1))


def test_flipped_byte_falls_back_to_the_previous_step(tmp_path):
  save_steps(tmp_path / 'good', 1, 2)
  for path in files_of(tmp_path / 'good' / '2'):
    copy = tmp_path / 'copy'
    shutil.copytree(tmp_path / 'good', copy)
    file = copy / path.relative_to(tmp_path / 'good')
    content = bytearray(file.read_bytes())
    if not content:
      shutil.rmtree(copy)
      continue
    content[len(content) // 2] ^= 0x20  # Usually keeps JSON valid.
    file.write_bytes(content)
    step, restored, _ = restore(copy)
    assert step == 1, path
    assert_same(restored, make_state(1))
    assert step_directories(copy) == [1]
    assert (copy / 'quarantined' / '2').is_dir()
    reason = (copy / 'quarantined' / '2.txt').read_text()
    assert 'was changed' in reason
    assert file.name in reason
    shutil.rmtree(copy)


def truncate(file):
  file.write_bytes(file.read_bytes()[:-1])


def delete(file):
  file.unlink()


@pytest.mark.parametrize('damage', [truncate, delete])
def test_truncated_or_deleted_file_falls_back(tmp_path, damage):
  save_steps(tmp_path / 'good', 1, 2)
  for path in files_of(tmp_path / 'good' / '2'):
    copy = tmp_path / 'copy'
    shutil.copytree(tmp_path / 'good', copy)
    damage(copy / path.relative_to(tmp_path / 'good'))
    step, restored, _ = restore(copy)
    assert step == 1, path
    assert_same(restored, make_state(1))
    shutil.rmtree(copy)


def test_added_file_falls_back(tmp_path):
  save_steps(tmp_path, 1, 2)
  (tmp_path / '2' / 'notes.txt').write_text('mine')
  assert restore(tmp_path)[0] == 1


def test_wrong_array_digest_falls_back(tmp_path):
  save_steps(tmp_path, 1, 2)
  leaves = manifest.read(tmp_path / '2')['leaves']
  leaves['params/scalar']['digest'] = '0' * 64
  (tmp_path / '2' / manifest.FILE_NAME).unlink()
  manifest.write(tmp_path / '2', 2, leaves)
  assert restore(tmp_path)[0] == 1
  reason = (tmp_path / 'quarantined' / '2.txt').read_text()
  assert 'params/scalar' in reason


def test_empty_higher_step_is_quarantined_and_can_be_saved_again(tmp_path):
  save_steps(tmp_path, 1)
  for _ in range(2):
    (tmp_path / '9').mkdir()
    assert restore(tmp_path)[0] == 1
  assert {p.name for p in (tmp_path / 'quarantined').iterdir()} == {
    '9',
    '9.txt',
    '9_again',
    '9_again.txt',
  }
  save_steps(tmp_path, 9)
  assert restore(tmp_path)[0] == 9


def test_quarantine_keeps_the_newest(tmp_path):
  save_steps(tmp_path, 1)
  for step in (7, 8, 9):
    (tmp_path / str(step)).mkdir()
    with Checkpointer(tmp_path, keep=2) as checkpointer:
      assert checkpointer.restore(jax.eval_shape(make_state)).step == 1
  quarantine = tmp_path / 'quarantined'
  assert {path.name for path in quarantine.iterdir()} == {
    *('8', '8.txt', '9', '9.txt')
  }
  # All that are found at once are kept, and with a smaller `keep` no good one
  # is removed before they are found.
  for step in (20, 30, 40):
    (tmp_path / str(step)).mkdir()
  with Checkpointer(tmp_path, keep=1) as checkpointer:
    assert checkpointer.restore(jax.eval_shape(make_state)).step == 1
  folders = [path.name for path in quarantine.iterdir() if path.is_dir()]
  assert sorted(folders) == ['20', '30', '40']


def test_restores_the_extra_of_its_step(tmp_path):
  with Checkpointer(tmp_path) as checkpointer:
    checkpointer.save(1, make_state(1), extra={'sums': [1, 2.5]})
    checkpointer.save(2, make_state(2))
  assert restore(tmp_path).extra is None
  (tmp_path / '2' / manifest.FILE_NAME).unlink()
  assert restore(tmp_path).extra == {'sums': [1, 2.5]}


def test_error_after_a_complete_save_is_raised(tmp_path):
  def fail():
    raise OSError('no route to host')

  checkpointer = Checkpointer(tmp_path, on_complete=fail)
  checkpointer.save(1, make_state(1))
  with pytest.raises(OSError, match='no route to host'):
    checkpointer.wait()
  assert restore(tmp_path).step == 1


def test_no_good_checkpoint_raises_and_changes_nothing(tmp_path):
  save_steps(tmp_path, 1, 2)
  for step in (1, 2):
    (tmp_path / str(step) / 'commit_success.txt').write_text('')
  for _ in range(2):  # Starting again raises the same error.
    with pytest.raises(NoGoodCheckpoint, match=r'step 2: .*; step 1: '):
      restore(tmp_path)
  assert step_directories(tmp_path) == [1, 2]


def test_incomplete_first_save_counts_as_no_checkpoint(tmp_path):
  save_steps(tmp_path, 1)
  (tmp_path / '1' / manifest.FILE_NAME).unlink()
  assert restore(tmp_path) is None
  assert step_directories(tmp_path) == []


def test_files_of_a_killed_save_are_removed(tmp_path):
  save_steps(tmp_path, 1)
  left = tmp_path / '2.orbax-checkpoint-tmp'
  shutil.copytree(tmp_path / '1', left)
  with Checkpointer(tmp_path) as checkpointer:
    assert checkpointer.restore(jax.eval_shape(make_state))[0] == 1
    # Orbax removes it in a thread that the next save waits for.
    checkpointer.save(3, make_state(3))
    assert not left.exists()


def test_read_only_changes_nothing_in_a_run_in_progress(tmp_path):
  target = jax.eval_shape(make_state)
  with Checkpointer(tmp_path / 'none', read_only=True) as reader:
    assert reader.restore(target) is None
  with Checkpointer(tmp_path) as writer:
    writer.save(3, make_state(3))
    writer.wait()
    writer.save(6, make_state(6))
    # Orbax has committed step 6, which has no manifest yet.
    writer._manager.wait_until_finished()
    unfinished = tmp_path / '9.orbax-checkpoint-tmp'
    unfinished.mkdir()
    with Checkpointer(tmp_path, read_only=True) as reader:
      step, state, _ = reader.restore(target)
    assert step == 3
    assert_same(state, make_state(3))
    assert unfinished.exists()
    assert step_directories(tmp_path) == [3, 6]
    writer.wait()
    with Checkpointer(tmp_path, keep=1, read_only=True) as reader:
      assert reader.restore(target)[0] == 6
    (tmp_path / '6' / 'manifest.json').unlink()
    # `keep` does not apply to a reader.
    with Checkpointer(tmp_path, keep=1, read_only=True) as reader:
      assert reader.restore(target)[0] == 3
    assert step_directories(tmp_path) == [3, 6]


def test_changed_model_raises_with_the_difference(tmp_path):
  save_steps(tmp_path, 1)
  with pytest.raises(StructureMismatch) as error:
    restore(tmp_path, lambda: make_state(width=7))
  lines = str(error.value).splitlines()
  assert (
    '  params/memory/qkv/w: float32[3, 5] in the checkpoint, '
    'float32[3, 7] here' in lines
  )
  assert len(lines) == 4  # The weight and Adam's two moments of it.
  assert step_directories(tmp_path) == [1]


def test_changed_optimizer_raises_with_the_difference(tmp_path):
  save_steps(tmp_path, 1)
  with pytest.raises(StructureMismatch) as error:
    restore(tmp_path, lambda: make_state(optimizer=optax.sgd(1e-3)))
  assert 'opt_state/0/mu/half: bfloat16[2] only in the checkpoint' in str(
    error.value
  )


def test_changed_key_type_raises(tmp_path):
  save_steps(tmp_path, 1)
  with pytest.raises(StructureMismatch, match=r'key: key<fry>\[\] in the'):
    restore(tmp_path, lambda: make_state(key=jax.random.PRNGKey(7)))


def test_long_difference_is_truncated(tmp_path):
  save_steps(tmp_path, 1)
  with pytest.raises(StructureMismatch, match=r'and \d+ more$') as error:
    restore(tmp_path, lambda: {f'other_{i}': jnp.zeros(i) for i in range(30)})
  assert len(str(error.value).splitlines()) == 14


def test_other_devices_are_logged(tmp_path, monkeypatch, caplog):
  save_steps(tmp_path, 1)
  assert restore(tmp_path)[0] == 1
  assert 'other versions' not in caplog.text
  devices = manifest.devices() | {'device_kind': 'abacus', 'new_entry': 3}
  monkeypatch.setattr(manifest, 'devices', lambda: devices)
  assert restore(tmp_path)[0] == 1
  assert (
    'other versions or devices: device_kind cpu -> abacus. The' in caplog.text
  )


@pytest.mark.parametrize('name', ['a[1]', 'a*', 'what?'])
def test_characters_that_orbax_takes_for_a_pattern_raise(tmp_path, name):
  with pytest.raises(ConfigurationError, match=r'must not contain .*Got: '):
    Checkpointer(tmp_path / name)
  assert not list(tmp_path.iterdir())


def test_keep_below_one_raises(tmp_path):
  with pytest.raises(ValueError, match='keep must be at least 1. Got: 0'):
    Checkpointer(tmp_path, keep=0)


def test_poll_completes_a_save(tmp_path):
  with Checkpointer(tmp_path) as checkpointer:
    checkpointer.poll()  # No save is in progress.
    checkpointer.save(1, make_state(1))
    poll_until(checkpointer, (tmp_path / '1' / manifest.FILE_NAME).exists)


def test_poll_does_not_wait(tmp_path, monkeypatch):
  def wait(self):
    raise AssertionError('poll waited')

  with Checkpointer(tmp_path) as checkpointer:
    checkpointer.save(1, make_state(1))
    with monkeypatch.context() as patch:
      manager = ocp.CheckpointManager
      patch.setattr(manager, 'is_saving_in_progress', lambda self: True)
      patch.setattr(manager, 'wait_until_finished', wait)
      checkpointer.poll()
    assert not (tmp_path / '1' / manifest.FILE_NAME).exists()


@pytest.fixture
def small_disk():
  """Limits files to 100 kB; writing more fails as on a full disk."""
  former = resource.getrlimit(resource.RLIMIT_FSIZE)
  resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, former[1]))
  yield
  resource.setrlimit(resource.RLIMIT_FSIZE, former)


def test_poll_raises_after_a_failed_save(tmp_path, small_disk):
  save_steps(tmp_path, 1)
  noise = np.random.default_rng(0).normal(size=(600, 600))  # Does not compress.
  checkpointer = Checkpointer(tmp_path)
  checkpointer.save(2, {'noise': jnp.asarray(noise, jnp.float32)})
  with pytest.raises(SaveFailed, match=r'step 2 .*newest complete .*: step 1'):
    poll_until(checkpointer, lambda: False)
  assert restore(tmp_path)[0] == 1


def test_save_raises_after_a_failed_save(tmp_path, small_disk):
  noise = np.random.default_rng(0).normal(size=(600, 600))
  checkpointer = Checkpointer(tmp_path)
  checkpointer.save(2, {'noise': jnp.asarray(noise, jnp.float32)})
  with pytest.raises(SaveFailed, match='newest complete checkpoint: none'):
    checkpointer.save(3, make_state(3))
