"""Random play of the games of `rmc_jax.envs`, their adapters and others.

The request's `program` selects one of `_PROGRAMS`.
"""

import dataclasses

import jax
import numpy as np

from experiments.benchmarks.workers import jax_worker
from experiments.benchmarks.workers import serve
from rmc_jax import envs

# Steps of all games together in one call, so that its own time does not matter,
# but at most _LONGEST of each game.
_STEPS = 1 << 17
_LONGEST = 1 << 12
_HOST_STEPS = 200  # of an adapter in one call
_RECORDED = 50, 50  # games and steps of the reference


def load(request, arrays=None):
  """Loads a program."""
  del arrays
  return jax_worker.program(*_PROGRAMS[request['program']](request))


def _rollout(request):
  """Plays games of this project."""
  env, params = _make(request)
  if num_levels := request['num_levels']:
    bank = envs.LevelBank(env)
    params = jax.jit(bank.draw, static_argnums=2)(
      jax.random.key(1), params, num_levels
    )
    env = bank
  env = envs.AutoReset(env)

  def step(key, state, action):
    state, outcome = env.step(key, state, action, params)
    pixels = env.observe(state, params) if request.get('observes', True) else ()
    return state, (pixels, *outcome[:3])

  def reset(key):
    return env.reset(key, params)

  return _play(request['games'], env.num_actions, reset, step)


def _gymnax(request):
  """Plays games of gymnax, or of this project behind its interface."""
  import gymnax

  from rmc_jax.envs.adapters.gymnax import GymnaxEnv

  if request['name'] in gymnax.registered_envs:
    env, params = gymnax.make(request['name'])
  else:
    env = GymnaxEnv(*_make(request))
    params = env.default_params

  def step(key, state, action):
    pixels, state, *outcome, _ = env.step(key, state, action, params)
    return state, (pixels, *outcome)

  def reset(key):
    return env.reset(key, params)[1]

  return _play(request['games'], env.num_actions, reset, step)


def _play(games, num_actions, reset, step):
  """Plays `games` at random, on all devices if they divide them, else on one.

  Args:
    games: how many.
    num_actions: of the game.
    reset: (key) -> state, of one game.
    step: (key, state, action) -> (state, what to keep), of one game.
  """
  devices = jax.devices()
  mesh = jax.make_mesh(
    (len(devices) if games % len(devices) == 0 else 1,), ('devices',)
  )
  num_steps = min(max(_STEPS // games, 1), _LONGEST)

  def rollout(keys, states):
    def advance(carry, _):
      keys, states = carry
      keys, action_keys, step_keys = jax.vmap(
        lambda key: jax.random.split(key, 3), out_axes=1
      )(keys)
      draw = jax.vmap(lambda key: jax.random.randint(key, (), 0, num_actions))
      states, kept = jax.vmap(step)(step_keys, states, draw(action_keys))
      return (keys, states), kept

    return jax.lax.scan(advance, (keys, states), length=num_steps)

  spec = jax.P('devices')
  run = jax.jit(
    jax.shard_map(
      rollout,
      mesh=mesh,
      in_specs=(spec, spec),
      out_specs=((spec, spec), jax.P(None, 'devices')),
      check_vma=False,
    ),
    donate_argnums=(0, 1),
  )
  keys, reset_keys = jax.random.split(jax.random.key(0), (2, games))
  carry = jax.device_put(
    (keys, jax.jit(jax.vmap(reset))(reset_keys)), jax.NamedSharding(mesh, spec)
  )

  def call():
    nonlocal carry
    carry, kept = run(*carry)
    jax.block_until_ready(kept)

  return call, {'items': games * num_steps, 'batches': num_steps}


def _vector_env(request):
  """Steps the vector environment of Gymnasium."""
  from rmc_jax.envs.adapters.gymnasium import VectorEnv

  env, params = _make(request)
  num_levels = request['num_levels'] or None
  vector = VectorEnv(env, params, request['games'], num_levels=num_levels)
  vector.reset(seed=0)
  rng = np.random.default_rng(0)
  actions = rng.integers(env.num_actions, size=(_HOST_STEPS, request['games']))

  def call():
    for row in actions:
      vector.step(row)

  return call, {'items': actions.size, 'batches': _HOST_STEPS}


def _gymnasium(request):
  """Steps one environment of Gymnasium."""
  from rmc_jax.envs.adapters.gymnasium import Env

  env, params = _make(request)
  one = Env(env, params)
  one.reset(seed=0)
  actions = np.random.default_rng(0).integers(env.num_actions, size=_HOST_STEPS)

  def call():
    for action in actions:
      *_, terminated, truncated, _ = one.step(action)
      if terminated or truncated:
        one.reset()

  return call, {'items': _HOST_STEPS, 'batches': _HOST_STEPS}


def _dm_env(request):
  """Steps one environment of dm_env, which resets by itself."""
  from rmc_jax.envs.adapters.dm_env import DmEnv

  env, params = _make(request)
  one = DmEnv(env, params)
  actions = np.random.default_rng(0).integers(env.num_actions, size=_HOST_STEPS)

  def call():
    for action in actions:
      one.step(action)

  return call, {'items': _HOST_STEPS, 'batches': _HOST_STEPS}


def _reference(request):
  """Repeats recorded random play in plain Python."""
  _, params = envs.make(request['name'])
  play = {'mini_pacman': _recorded_pacman, 'box_world': _recorded_box_world}
  step, calls = play[request['name']](params)

  def call():
    for arguments in calls:
      step(*arguments)

  return call, {'items': len(calls), 'batches': len(calls)}


def _recorded_pacman(params):
  from tests.envs.mini_pacman import games
  from tests.reference import mini_pacman as reference

  played = games.play(jax.random.key(0), params, *_RECORDED)
  rules = dataclasses.asdict(params)
  return reference.Game, [
    (
      games.to_reference(state),
      games.ACTIONS[action],
      games.draws_to_reference(draws),
      rules,
    )
    for game, step in np.ndindex(*_RECORDED)
    for state, action, draws, _ in [games.row(played, step, game)]
  ]


def _recorded_box_world(params):
  from tests.envs.box_world import games
  from tests.reference import box_world as reference

  played = games.play(jax.random.key(0), params, *_RECORDED)
  return reference.move, [
    (games.to_reference(state), games.ACTIONS[action])
    for game, step in np.ndindex(*_RECORDED)
    for state, action, _ in [games.row(played, step, game)]
  ]


def _make(request):
  names = ('view', 'pixels')
  given = {name: request[name] for name in names if name in request}
  return envs.make(request['name'], **given)


_PROGRAMS = {
  'rollout': _rollout,
  'gymnax': _gymnax,
  'vector_env': _vector_env,
  'gymnasium': _gymnasium,
  'dm_env': _dm_env,
  'reference': _reference,
}


if __name__ == '__main__':
  serve.serve(load)
