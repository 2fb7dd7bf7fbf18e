"""Tests rmc_jax/models/actor_critic.py."""

import haiku as hk
import jax
import jax.numpy as jnp
import jmp
import numpy as np
import pytest

from rmc_jax.cores import ConvLSTM
from rmc_jax.cores import DNC
from rmc_jax.cores import LSTM
from rmc_jax.cores import RelationalMemory
from rmc_jax.models import ActorCritic
from rmc_jax.models.actor_critic import AgentInputs
from rmc_jax.models.actor_critic import append_coordinates
from rmc_jax.training import count_parameters

T, B, ROWS, COLUMNS, CHANNELS, A = 6, 2, 4, 5, 3, 7
BOUNDARY = 3  # The second episode starts here.
CORES = {
  'relational_memory': lambda: RelationalMemory(3, 5, 2, gate_style='memory'),
  'lstm': lambda: LSTM(11),
  'conv_lstm': lambda: ConvLSTM(ROWS, COLUMNS, 6),
  'dnc': lambda: DNC(5, 4, hidden_size=9),
  'haiku': lambda: hk.GRU(11),
}


def make_inputs(seed=0, first=()):
  rng = np.random.default_rng(seed)
  flags = np.zeros((T, B), bool)
  flags[list(first)] = True
  return AgentInputs(
    observation=jnp.asarray(
      rng.random((T, B, ROWS, COLUMNS, CHANNELS)), jnp.float32
    ),
    last_action=jnp.asarray(rng.integers(0, A, (T, B))),
    last_reward=jnp.asarray(3 * rng.standard_normal((T, B)), jnp.float32),
    first=jnp.asarray(flags),
  )


def make(core='lstm', **options):
  """Returns apply(inputs, state=None) with parameters of its own."""

  def run(inputs, state):
    model = ActorCritic(CORES[core](), A, **options)
    if state is None:
      state = model.initial_state(inputs.first.shape[1])
    return model(inputs, state)

  net = hk.without_apply_rng(hk.transform(run))
  params = jax.jit(net.init)(jax.random.key(0), make_inputs(), None)
  apply = jax.jit(net.apply)
  return params, lambda inputs, state=None: apply(params, inputs, state)


@pytest.mark.parametrize('core', CORES)
def test_packed_episodes_equal_separate_ones(core):
  _, apply = make(core)
  inputs = make_inputs(first=[BOUNDARY])
  early, late = (
    jax.tree.map(lambda x, part=part: x[part], inputs)
    for part in (slice(None, BOUNDARY), slice(BOUNDARY, None))
  )
  (first, _), (second, last) = apply(early), apply(late)
  packed, state = apply(inputs)
  # Products over sequences of other lengths may round differently.
  close = {'atol': 1e-5}
  for name in ('logits', 'value'):
    np.testing.assert_allclose(
      getattr(packed, name),
      np.concatenate([getattr(first, name), getattr(second, name)]),
      **close,
    )
  jax.tree.map(
    lambda x, y: np.testing.assert_allclose(x, y, **close), state, last
  )


@pytest.mark.parametrize('core', CORES)
def test_nan_before_an_episode_does_not_reach_it(core):
  _, apply = make(core)
  inputs = make_inputs(first=[BOUNDARY])
  expected, state = apply(inputs)
  nan = inputs.observation.at[:BOUNDARY].set(jnp.nan)
  poisoned = jax.tree.map(
    lambda x: x * jnp.nan if x.dtype == jnp.float32 else x, state
  )
  output, _ = apply(inputs._replace(observation=nan), poisoned)
  assert np.isnan(output.value[:BOUNDARY]).all()
  np.testing.assert_allclose(
    output.logits[BOUNDARY:], expected.logits[BOUNDARY:], atol=1e-5
  )


def test_core_resets_at_first_observation():
  _, apply = make()
  inputs = make_inputs(first=[0])
  fresh, _ = apply(inputs)
  other = jax.tree.map(lambda x: x + 1.0, apply(make_inputs(seed=5))[1])
  reset, _ = apply(inputs, other)
  np.testing.assert_array_equal(reset.logits, fresh.logits)
  kept, _ = apply(make_inputs(), other)
  assert np.abs(kept.logits[0] - fresh.logits[0]).max() > 1e-3


def test_last_action_and_reward_are_inputs_where_asked():
  for asked in (False, True):
    _, apply = make(last_action_and_reward=asked)
    inputs = make_inputs()
    plain, _ = apply(inputs)
    for change in (
      {'last_action': (inputs.last_action + 1) % A},
      {'last_reward': -inputs.last_reward},
    ):
      changed, _ = apply(inputs._replace(**change))
      assert (np.abs(changed.value - plain.value).max() > 1e-4) == asked
  # The reward is clipped to [-1, 1].
  far = jnp.where(inputs.last_reward > 0, 1.0, -1.0)
  one, _ = apply(inputs._replace(last_reward=far))
  ten, _ = apply(inputs._replace(last_reward=10 * far))
  np.testing.assert_array_equal(one.value, ten.value)


def test_each_cell_can_be_an_input_row():
  params, apply = make('relational_memory', cells_as_rows=True)
  # 24 channels and two coordinates, to 10 units.
  assert params['relational_memory/input']['w'].shape == (26, 10)
  assert apply(make_inputs())[0].logits.shape == (T, B, A)
  with pytest.raises(ValueError, match='cells_as_rows must be False .* LSTM'):
    make('lstm', cells_as_rows=True)


@pytest.mark.parametrize(
  'core, options',
  [('relational_memory', {'cells_as_rows': True}), ('conv_lstm', {})],
)
def test_cores_of_cells_refuse_the_last_action(core, options):
  message = 'last_action_and_reward must be False'
  with pytest.raises(ValueError, match=message):
    make(core, last_action_and_reward=True, **options)


def test_flat_observations_need_no_convolutions():
  inputs = make_inputs()
  flat = inputs.observation.reshape(T, B, -1)
  net = hk.transform(
    lambda inputs, **options: ActorCritic(LSTM(11), A, **options)(
      inputs, LSTM(11).initial_state(B)
    )
  )
  inputs = inputs._replace(observation=flat)
  net.init(jax.random.key(0), inputs, channels=(), coordinates='none')
  with pytest.raises(ValueError, match='observation must be .* Got shape'):
    net.init(jax.random.key(0), inputs)


def test_coordinates_are_evenly_spaced():
  tagged = append_coordinates(jnp.zeros((B, 5, 3, 2)))
  assert tagged.shape == (B, 5, 3, 4)
  for b in range(B):
    np.testing.assert_allclose(
      tagged[b, :, 1, 2], [-1, -0.5, 0, 0.5, 1], atol=1e-6
    )
    np.testing.assert_allclose(tagged[b, 2, :, 3], [-1, 0, 1], atol=1e-6)
    np.testing.assert_array_equal(tagged[b, ..., :2], 0)


def test_coordinates_of_the_observation_skip_the_convolutions():
  params, apply = make(coordinates='observation', channels=(6,))
  # One of the 3 channels goes to the convolution.
  assert params['actor_critic/conv_0']['w'].shape == (2, 2, 1, 6)
  cells = np.zeros((ROWS, COLUMNS, 6 + 2, 44))
  cells[..., -2:, :] = 0.01
  w = cells.reshape(-1, 44)  # Of all cells only the coordinates count.
  params['lstm/input_0']['w'] = jnp.asarray(w, jnp.float32)
  inputs = make_inputs()
  plain, _ = apply(inputs)
  pixels = inputs.observation
  moved, _ = apply(inputs._replace(observation=pixels.at[..., 1:].add(0.5)))
  other, _ = apply(inputs._replace(observation=pixels.at[..., 0].add(0.5)))
  np.testing.assert_array_equal(other.value, plain.value)
  assert (np.abs(moved.value - plain.value) > 1e-4).all()
  with pytest.raises(ValueError, match='coordinates must be one of'):
    make(coordinates='room')
  with pytest.raises(ValueError, match=r'strides must be 1 .*Got: \(1, 2\)'):
    make(coordinates='observation', strides=(1, 2))


@pytest.mark.parametrize(
  ('options', 'message'),
  [
    ({'channels': (4, 0)}, r'channels\[1\] must be at least 1. Got: 0'),
    ({'strides': (0, 1)}, r'strides\[0\] must be at least 1. Got: 0'),
    ({'hidden_sizes': (3, 0)}, r'hidden_sizes\[1\] must be at least 1'),
    ({'kernel_size': 0}, 'kernel_size must be at least 1. Got: 0'),
  ],
)
def test_sizes_below_one_are_refused(options, message):
  with pytest.raises(ValueError, match=message):
    make(**options)


@pytest.mark.parametrize('coordinates', ['view', 'observation'])
def test_policy_of_the_model_holds_for_convolutions(coordinates):
  _, apply = make(coordinates=coordinates)
  exact, _ = apply(make_inputs())
  policy = jmp.get_policy('params=float32,compute=bfloat16,output=float32')
  with hk.mixed_precision.push_policy(ActorCritic, policy):
    _, apply = make(coordinates=coordinates)
    output, _ = apply(make_inputs())
  assert output.logits.dtype == jnp.float32
  difference = np.abs(output.logits - exact.logits).max()
  # A few roundings to 8 bits of numbers of order 1.
  assert 1e-4 < difference < 2e-2


def test_bytes_are_scaled_to_one():
  _, apply = make()
  inputs = make_inputs()
  pixels = (255 * inputs.observation).astype(jnp.uint8)
  floats = pixels.astype(jnp.float32) / 255
  one, _ = apply(inputs._replace(observation=pixels))
  other, _ = apply(inputs._replace(observation=floats))
  np.testing.assert_array_equal(one.logits, other.logits)


def test_strides_shrink_the_map():
  params, _ = make(channels=(2, 6), kernel_size=3, strides=(1, 2))
  # 2 x 3 cells of 6 channels and two coordinates.
  assert params['lstm/input_0']['w'].shape == (2 * 3 * 8, 44)
  with pytest.raises(
    ValueError, match=r'one number per convolution, .* \(2,\)'
  ):
    make(channels=(2, 6), strides=(2,))


@pytest.mark.parametrize(
  'core, size',
  [
    (lambda: RelationalMemory(4, 64, 4, gate_style='memory'), 505_805),
    (lambda: ConvLSTM(5, 5, 64), 102_153),
  ],
  ids=['relational_memory', 'conv_lstm'],
)
def test_agents_of_the_paper_have_their_number_of_parameters(core, size):
  def run(inputs):
    model = ActorCritic(core(), 4)
    return model(inputs, model.initial_state(B))

  inputs = make_inputs()._replace(observation=jnp.zeros((T, B, 5, 5, 6)))
  params = jax.eval_shape(hk.transform(run).init, jax.random.key(0), inputs)
  assert count_parameters(params) == size
