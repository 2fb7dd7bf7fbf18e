"""Tests rmc_jax/rl/actors.py with Gymnasium environments."""

import functools
import os
import re
import signal
import threading
import time

import gymnasium
import jax
import numpy as np
import optax
import pytest

from rmc_jax import rl
from rmc_jax import training
from rmc_jax.cores import LSTM
from rmc_jax.models import ActorCritic
from rmc_jax.rl import actors as actors_lib
from rmc_jax.rl.actors import HostActors
from tests.rl.recall import CUES
from tests.rl.recall import RecallEnv

T, SIZE, ACTORS = 9, 4, 3


@pytest.fixture
def network():
  return rl.make_network(
    lambda: ActorCritic(LSTM(13), CUES, channels=(), coordinates='none'),
    jax.ShapeDtypeStruct((2 * CUES,), np.float32),
  )


def make_actors(network, make_env=RecallEnv, **options):
  options = {
    'num_actors': ACTORS,
    'batch_size': 2 * SIZE,
    'envs_per_actor': SIZE,
    'unroll_length': T,
    'timeout_seconds': 60,
  } | options
  return HostActors(network, make_env, **options)


def params_of(network):
  return jax.jit(network.init)(jax.random.key(0))


def actor_threads():
  return [t for t in threading.enumerate() if t.name.startswith('actor_')]


class Counting(RecallEnv):
  """Counts steps and closed environments of all instances."""

  steps_of_all = 0
  closed = 0

  def step(self, action):
    Counting.steps_of_all += 1
    return super().step(action)

  def close(self):
    Counting.closed += 1


class Failing(RecallEnv):
  """Fails once in the first instances, or in all of them in each episode."""

  failures = 2

  def step(self, action):
    if Failing.failures > 0:  # Threads may count it below 0.
      Failing.failures -= 1
      raise RuntimeError('out of food')
    return super().step(action)


def test_trajectories_match_the_environment(network):
  params = params_of(network)
  with make_actors(network) as actors:
    actors.set_params(params)
    batches = [actors.batch(step) for step in range(3)]
  # A batch alone may lack them; of about 54 episodes one in five is truncated.
  assert any(batch.terminated.any() for batch in batches)
  assert any(batch.truncated.any() for batch in batches)
  for batch in batches:
    inputs = batch.inputs
    assert inputs.observation.shape == (2 * SIZE, T + 1, 2 * CUES)
    ended = batch.terminated | batch.truncated
    # The step after the last of an episode resets.
    np.testing.assert_array_equal(inputs.first[:, 2:], ended[:, :-1])
    reset = inputs.first[:, 1:]
    assert not batch.rewards[reset].any()
    assert not ended[reset].any()
    np.testing.assert_array_equal(inputs.last_reward[:, 1:], batch.rewards)
    np.testing.assert_array_equal(
      inputs.last_action[:, 1:], np.where(reset, 0, batch.actions)
    )
    # The cue is visible in first observations only.
    cues = inputs.observation[..., :CUES].sum(-1)
    np.testing.assert_array_equal(cues, inputs.first)
    # An episode has 2 to 4 steps, and its last one was announced.
    assert set(batch.lengths[ended]) <= {2, 3, 4}
    np.testing.assert_array_equal(
      inputs.observation[:, :-1, CUES:].all(-1) & ~reset, ended
    )
    np.testing.assert_array_equal(batch.returns[ended], batch.rewards[ended])
    output, _ = network.apply(
      params,
      jax.tree.map(lambda x: x.swapaxes(0, 1), inputs),
      batch.state,
    )
    # Products of one step and of a sequence may round differently.
    np.testing.assert_allclose(
      output.logits[:-1].swapaxes(0, 1), batch.logits, atol=1e-5
    )


def test_agent_learns_a_memory_task(network, tmp_path):
  optimizer = optax.adam(0.01)
  config = rl.AgentConfig(unroll_length=T, entropy_cost=0.01, discount=0.9)
  run = training.RunConfig(
    num_steps=400, log_every=50, checkpoint_every=400, eval_every=400
  )
  experiment = training.Experiment(
    init=lambda: training.create_state(
      network.init(jax.random.key(0)), {}, optimizer, jax.random.key(1)
    ),
    update=training.make_update(
      rl.make_loss_fn(network.apply, config),
      optimizer,
      global_batch_size=2 * SIZE,
      reduction='sum',
    ),
    source=make_actors(network),
  )
  training.train(tmp_path, experiment, run)
  lines = training.log.read_metrics(tmp_path)
  assert lines[0]['train']['episode_return'] < 0.6
  # All but the fifth that is truncated.
  assert lines[-1]['train']['episode_return'] > 0.7
  assert not actor_threads()


def test_actors_wait_for_the_learner_and_close_their_environments(network):
  Counting.steps_of_all = Counting.closed = 0
  with make_actors(network, Counting) as actors:
    actors.set_params(params_of(network))
    actors.batch(0)
    for _ in range(200):  # Until nothing happens for a while.
      before = Counting.steps_of_all
      time.sleep(0.3)
      if Counting.steps_of_all == before:
        break
    # One batch was taken, one waits, and each actor holds one trajectory.
    assert before <= (2 + 2 + ACTORS) * SIZE * T
    assert before > 2 * SIZE * T
  assert not actor_threads()
  assert Counting.closed == ACTORS * SIZE


def test_source_can_be_used_again(network):
  actors = make_actors(network)
  for _ in range(2):
    with actors:
      actors.set_params(params_of(network))
      assert actors.batch(0).actions.shape == (2 * SIZE, T)
    assert not actor_threads()


def test_actor_that_stops_late_does_not_play_after_the_next_start(
  network, monkeypatch
):
  monkeypatch.setattr(actors_lib, '_JOIN_SECONDS', 0.1)
  started, release = threading.Event(), threading.Event()

  class Slow(RecallEnv):
    def reset(self, **options):
      started.set()
      release.wait(60)
      return super().reset(**options)

  actors = make_actors(network, Slow, num_actors=1)
  with actors:
    actors.set_params(params_of(network))
    assert started.wait(60)
  (late,) = actor_threads()
  with actors:
    actors.set_params(params_of(network))
    release.set()
    late.join(20)
    assert not late.is_alive()
    assert actors.batch(0).actions.shape == (2 * SIZE, T)


@pytest.mark.parametrize('seed', [None, 3])
def test_seeds_are_repeated_only_if_given(network, seed):
  def cues():
    with make_actors(network, num_actors=1, seed=seed) as actors:
      actors.set_params(params_of(network))
      return actors.batch(0).inputs.observation[:, 0]

  assert np.array_equal(cues(), cues()) == (seed is not None)


def test_interrupts_of_environments_do_not_end_the_actor(network):
  class Interrupted(Failing):
    def step(self, action):
      try:
        return super().step(action)
      except RuntimeError:
        raise KeyboardInterrupt from None

  Failing.failures = 1
  with make_actors(network, Interrupted, num_actors=1) as actors:
    actors.set_params(params_of(network))
    assert actors.batch(0).actions.shape == (2 * SIZE, T)
    assert actors.replaced == 1


def test_dead_actors_are_replaced_and_counted(network):
  Failing.failures = 2
  with make_actors(network, Failing) as actors:
    actors.set_params(params_of(network))
    for step in range(5):
      assert actors.batch(step).actions.shape == (2 * SIZE, T)
    assert actors.replaced == 2


def test_environments_that_always_fail_end_the_run(network):
  Failing.failures = 10**9
  with make_actors(network, Failing) as actors:
    actors.set_params(params_of(network))
    with pytest.raises(RuntimeError, match='3 times in a row') as error:
      actors.batch(0)
    assert str(error.value.__cause__) == 'out of food'
  assert not actor_threads()


def test_environments_that_hang_end_the_run(network):
  release = threading.Event()

  class Hanging(RecallEnv):
    def step(self, action):
      release.wait(60)
      return super().step(action)

  with make_actors(network, Hanging, timeout_seconds=0.5) as actors:
    actors.set_params(params_of(network))
    with pytest.raises(RuntimeError, match='No trajectory arrived within'):
      actors.batch(0)
    release.set()


def test_refuses_wrong_batch_sizes_and_spaces(network):
  with pytest.raises(ValueError, match='envs_per_actor must divide batch_size'):
    make_actors(network, envs_per_actor=3)
  with pytest.raises(ValueError, match='batch_size must be at least 1'):
    make_actors(network, batch_size=0)

  box = gymnasium.spaces.Box(0, 1, (2,))
  for spaces, message in (
    ({'action_space': box}, 'Discrete action space. Got: Box'),
    (
      {'observation_space': gymnasium.spaces.Discrete(3)},
      'a Box of observations; .* Got: Discrete',
    ),
    (
      {'action_space': gymnasium.spaces.Discrete(5)},
      'must have 5 actions, as the environment. Got: 3',
    ),
  ):
    wrong = type('Wrong', (RecallEnv,), spaces)
    with make_actors(network, wrong) as actors:
      actors.set_params(params_of(network))
      with pytest.raises(RuntimeError) as error:
        actors.batch(0)
      assert re.search(message, str(error.value.__cause__))


class WithPid(RecallEnv):
  """Writes the number of its process, unless it is that of the actors."""

  def __init__(self, folder, own):
    if os.getpid() != own:
      (folder / str(os.getpid())).touch()


@pytest.mark.multiprocess
# Gymnasium's, of an environment that cannot answer any more.
@pytest.mark.filterwarnings('ignore:.*Calling `close` while waiting')
def test_environment_whose_process_dies_is_replaced(network, tmp_path):
  make_env = functools.partial(WithPid, tmp_path, os.getpid())
  with make_actors(
    network, make_env, processes=True, num_actors=2, envs_per_actor=2
  ) as actors:
    actors.set_params(params_of(network))
    step, first = 0, set()
    while len(first) < 4:  # The second actor may start later.
      step += 1
      actors.batch(step)
      first = {path.name for path in tmp_path.iterdir()}
    os.kill(int(min(first)), signal.SIGKILL)
    second = first
    while len(second) < 6:  # Both environments of the actor are new.
      step += 1
      actors.batch(step)
      second = {path.name for path in tmp_path.iterdir()}
    assert second > first
    assert actors.replaced == 1
  for name in second:  # No process is left.
    with pytest.raises(ProcessLookupError):
      os.kill(int(name), 0)
