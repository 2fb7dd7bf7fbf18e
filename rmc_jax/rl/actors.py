"""Actors on the host, for environments that do not run on the device."""

from collections.abc import Callable
import functools
import queue
import threading
import time

from absl import logging
import gymnasium
from gymnasium.vector import AsyncVectorEnv
from gymnasium.vector import AutoresetMode
from gymnasium.vector import SyncVectorEnv
from gymnasium.vector import VectorEnv
import jax
import numpy as np

from rmc_jax import training
from rmc_jax.checks import positive_int
from rmc_jax.models.actor_critic import AgentInputs
from rmc_jax.rl.network import Network
from rmc_jax.rl.trajectory import Trajectory
from rmc_jax.types import Array
from rmc_jax.types import ArrayTree

_POLL_SECONDS = 0.2  # between checks of the stop flag
_MAX_FAILURES = 3  # consecutive ones of an actor, which end the run
_JOIN_SECONDS = 30.0
_CLOSE_SECONDS = 5.0


class HostActors(training.Source):
  """A data source of trajectories from any Gymnasium environment.

  Each actor is a thread that steps `envs_per_actor` environments on the CPU and
  takes the newest parameters before each trajectory. At most one batch is
  queued; actors that are ahead wait. Not reproducible: the order of
  trajectories depends on timing.

  If an environment raises or its process dies, the actor continues with new
  environments, and `replaced` increases. After three consecutive failures
  `batch` raises the error.

  A `jmp` policy that `hk.mixed_precision.set_policy` sets holds in one thread
  only, not in those of actors; `CoreConfig.compute_dtype` holds in all.

  Source: Espeholt et al. 2018, "IMPALA", section 3. Difference: its actors are
  processes on other machines.

  Args:
    network: the agent.
    make_env: builds an environment with a Box of observations, discrete actions
      and episodes that end. Must be picklable by cloudpickle if `processes`.
    num_actors: Santoro et al. 2018 use 100.
    batch_size: trajectories in a batch of this process; see
      `training.process_rows`.
    unroll_length: T.
    envs_per_actor: environments that act together; must divide `batch_size`.
    processes: whether each environment runs in its own process, for slow Python
      environments. The main program then needs an `if __name__ == '__main__'`
      guard.
    seed: of environments and actions; None for another in every process of the
      job and at every start.
    timeout_seconds: seconds without a trajectory after which `batch` raises.

  Attributes:
    replaced: how often an actor has got new environments.

  Raises:
    ValueError: a number is out of range, or `envs_per_actor` does not divide
      `batch_size`.
  """

  reproducible = False

  def __init__(
    self,
    network: Network,
    make_env: Callable[[], gymnasium.Env],
    *,
    num_actors: int,
    batch_size: int,
    unroll_length: int,
    envs_per_actor: int = 1,
    processes: bool = False,
    seed: int | None = None,
    timeout_seconds: float = 300.0,
  ):
    self._num_actors = positive_int('num_actors', num_actors)
    self._unroll_length = positive_int('unroll_length', unroll_length)
    self._size = positive_int('envs_per_actor', envs_per_actor)
    if positive_int('batch_size', batch_size) % envs_per_actor:
      raise ValueError(
        f'envs_per_actor must divide batch_size, {batch_size}. '
        f'Got: {envs_per_actor}.'
      )
    self._per_batch = batch_size // envs_per_actor
    self._make_env, self._processes = make_env, processes
    entropy = None if seed is None else [seed, jax.process_index()]
    self._seeds = np.random.SeedSequence(entropy)
    self._timeout = timeout_seconds
    self._act = jax.jit(functools.partial(_act, network))
    self._initial_state = jax.jit(network.initial_state, static_argnums=1)
    self._params: ArrayTree = None
    self._lock = threading.Lock()
    self.replaced = 0
    self._clear()

  def set_params(self, params: ArrayTree) -> None:
    """See base class. Starts the actors when called first."""
    copied = jax.tree.map(lambda leaf: np.array(leaf, copy=True), params)
    self._params = jax.device_put(copied, _cpu())
    if not self._threads:
      self._threads = [
        threading.Thread(
          target=self._run, args=(seeds,), name=f'actor_{i}', daemon=True
        )
        for i, seeds in enumerate(self._seeds.spawn(self._num_actors))
      ]
      for thread in self._threads:
        thread.start()

  def batch(self, step: int) -> Trajectory:
    """See base class.

    Raises:
      RuntimeError: an actor failed repeatedly, or no trajectory arrived in
        time.
    """
    del step
    parts = [self._get() for _ in range(self._per_batch)]
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)

  def _clear(self) -> None:
    """Prepares for actors to start."""
    self._queue: queue.Queue[Trajectory] = queue.Queue(self._per_batch)
    self._stop = threading.Event()
    self._threads: list[threading.Thread] = []
    self._error: BaseException | None = None

  def __exit__(self, *exception) -> None:
    self._stop.set()
    deadline = time.monotonic() + _JOIN_SECONDS
    for thread in self._threads:
      thread.join(max(0.0, deadline - time.monotonic()))
    if left := [each.name for each in self._threads if each.is_alive()]:
      logging.warning('These actors did not stop in time: %s.', left)
    self._clear()

  def _get(self) -> Trajectory:
    deadline = time.monotonic() + self._timeout
    while self._error is None:
      try:
        return self._queue.get(timeout=_POLL_SECONDS)
      except queue.Empty:
        if time.monotonic() > deadline:
          raise RuntimeError(
            f'No trajectory arrived within {self._timeout:.0f} s from '
            f'{self._num_actors} actors. Check that the environment does not '
            'hang, or raise timeout_seconds.'
          ) from None
    raise RuntimeError(
      f'An actor failed {_MAX_FAILURES} times in a row, the last time with the '
      'error above. Fix the environment that make_env returns.'
    ) from self._error

  def _run(self, seeds: np.random.SeedSequence) -> None:
    """The program of one actor: replaces its environments when they fail."""
    failures = 0
    # Of this start: there are others after the next one.
    stop, trajectories = self._stop, self._queue
    while not stop.is_set() and self._error is None:
      (seed,) = seeds.spawn(1)
      try:
        for trajectory in self._play(seed, stop):
          failures = 0
          if not _put(trajectories, trajectory, stop):
            return
      # A process passes on a KeyboardInterrupt, which must not end the thread.
      except BaseException as error:
        if stop.is_set():
          return
        failures += 1
        if failures == _MAX_FAILURES:
          # Its frames would keep the environments alive.
          self._error = error.with_traceback(None)
          return
        with self._lock:
          self.replaced += 1
        logging.warning(
          '%s failed and is replaced (%d so far): %r',
          threading.current_thread().name,
          self.replaced,
          error,
        )

  def _play(self, seed: np.random.SeedSequence, stop: threading.Event):
    """Yields trajectories of one set of environments."""
    env_seed, key_seed = (int(word) for word in seed.generate_state(2))
    env = self._make_envs()
    try:
      with jax.default_device(_cpu()):
        actor = _VectorActor(env, env_seed, jax.random.key(key_seed))
        core = self._initial_state(self._params, self._size)
        while True:
          trajectory, core = actor.unroll(
            functools.partial(self._act, self._params),
            core,
            self._unroll_length,
            stop.is_set,
          )
          if trajectory is None:
            return
          yield trajectory
    finally:
      _close(env)

  def _make_envs(self) -> VectorEnv:
    makers = self._size * [self._make_env]
    mode = AutoresetMode.NEXT_STEP
    if not self._processes:
      return SyncVectorEnv(makers, autoreset_mode=mode)
    # A fork of a program with threads may deadlock.
    return AsyncVectorEnv(makers, context='spawn', autoreset_mode=mode)


def _put(
  trajectories: queue.Queue[Trajectory],
  trajectory: Trajectory,
  stop: threading.Event,
) -> bool:
  """Waits for a place in the queue; returns False if it is time to stop."""
  while not stop.is_set():
    try:
      trajectories.put(trajectory, timeout=_POLL_SECONDS)
      return True
    except queue.Full:
      pass
  return False


class _VectorActor:
  """Vectorized environments and the inputs of their next step, [B, ...]."""

  def __init__(self, env: VectorEnv, seed: int, key: Array):
    space = env.single_action_space
    if not isinstance(space, gymnasium.spaces.Discrete):
      raise ValueError(
        'make_env must return an environment with a Discrete action space. '
        f'Got: {space}.'
      )
    if not isinstance(env.single_observation_space, gymnasium.spaces.Box):
      raise ValueError(
        'make_env must return an environment with a Box of observations; '
        'gymnasium.wrappers.FlattenObservation makes one. '
        f'Got: {env.single_observation_space}.'
      )
    self._num_actions = space.n
    size = env.num_envs
    self._env, self._key, self._first_action = env, key, space.start
    observation, _ = env.reset(seed=seed)
    self._inputs = AgentInputs(
      observation=np.array(observation),
      last_action=np.zeros(size, np.int32),
      last_reward=np.zeros(size, np.float32),
      first=np.ones(size, bool),
    )
    self._returns = np.zeros(size, np.float32)
    self._lengths = np.zeros(size, np.int32)
    self._ended = np.zeros(size, bool)

  def unroll(self, act, core: ArrayTree, length: int, stop: Callable[[], bool]):
    """Returns a trajectory and the core's state; (None, core) if stopped."""
    start, records = jax.device_get(core), []
    for _ in range(length):
      if stop():
        return None, core
      inputs = self._inputs
      action, logits, core, self._key = act(inputs, core, self._key)
      if logits.shape[-1] != self._num_actions:
        raise ValueError(
          f'The network must have {self._num_actions} actions, as the '
          f'environment. Got: {logits.shape[-1]}.'
        )
      record = self._step(np.asarray(action)) | {'logits': logits}
      records.append((inputs, record))
    inputs = [seen for seen, _ in records] + [self._inputs]
    inputs = jax.tree.map(lambda *leaves: np.stack(leaves, 1), *inputs)
    columns = {
      name: np.stack([np.asarray(record[name]) for _, record in records], 1)
      for name in records[0][1]
    }
    return Trajectory(state=start, inputs=inputs, **columns), core

  def _step(self, action: np.ndarray) -> dict[str, np.ndarray]:
    """Acts, or resets what has ended; returns fields of the trajectory."""
    ended = self._ended
    observation, reward, terminated, truncated, _ = self._env.step(
      action + self._first_action
    )
    reward = np.asarray(reward, np.float32)
    self._returns = np.where(ended, 0, self._returns + reward)
    self._lengths = np.where(ended, 0, self._lengths + 1)
    self._inputs = AgentInputs(
      observation=np.array(observation),  # Gymnasium reuses the buffer.
      last_action=np.where(ended, 0, action).astype(np.int32),
      last_reward=reward,
      first=ended,
    )
    self._ended = terminated | truncated
    return {
      'actions': action,
      'rewards': reward,
      'terminated': terminated,
      'truncated': truncated,
      'returns': self._returns,
      'lengths': self._lengths,
    }


def _act(network: Network, params: ArrayTree, inputs, core, key: Array):
  """Returns actions, logits, the core's state and a new key."""
  key, action_key = jax.random.split(key)
  inputs = jax.tree.map(lambda x: x[None], inputs)
  output, core = network.apply(params, inputs, core)
  logits = output.logits[0]
  return jax.random.categorical(action_key, logits), logits, core, key


def _close(env: VectorEnv) -> None:
  if not isinstance(env, AsyncVectorEnv):
    env.close()
    return
  try:
    env.close(timeout=_CLOSE_SECONDS)
  except Exception:  # Raised again for a process that died or failed.
    for process in env.processes:
      process.terminate()
      process.join()
    env.closed = True


def _cpu():
  try:
    return jax.local_devices(backend='cpu')[0]
  except RuntimeError as error:
    raise RuntimeError(
      'Actors compute on a CPU, which JAX has not been allowed to use. Add cpu '
      'to JAX_PLATFORMS, as in JAX_PLATFORMS=cuda,cpu.'
    ) from error
