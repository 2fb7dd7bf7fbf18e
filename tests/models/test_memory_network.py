"""Tests rmc_jax/models/memory_network.py."""

import haiku as hk
import jax
import jax.numpy as jnp
from jax.test_util import check_grads
import numpy as np
import pytest

from rmc_jax.models import memory_network
from rmc_jax.models import MemoryNetwork
from tests.reference import memory_network as reference

# Distinct sizes: B examples, M statements, F features of a sentence, V answers,
# d units, H hops, and rows of the tables.
B, M, F, V, D, H, ROWS = 2, 5, 8, 9, 7, 3, 13
NAME = 'memory_network'


def transform(**arguments):
  arguments = {'embedding_size': D, 'num_hops': H} | arguments
  network = hk.without_apply_rng(
    hk.transform(lambda *inputs: MemoryNetwork(ROWS, V, **arguments)(*inputs))
  )
  # The fourth argument, if any, is a function.
  apply = jax.jit(network.apply, static_argnums=3)
  return hk.Transformed(jax.jit(network.init), apply)


def draw(seed=0):
  """Returns a story with empty slots and padded sentences, and a question."""
  generator = np.random.default_rng(seed)
  story = generator.integers(1, ROWS, (B, M, F))
  question = generator.integers(1, ROWS, (B, F))
  story[0, 3:] = 0  # two empty slots
  story[0, 1, 2:] = story[1, 4, 3:] = question[1, 1:] = 0
  return story.astype(np.int32), question.astype(np.int32)


def make(seed=0, **arguments):
  network = transform(**arguments)
  story, question = draw(seed)
  params = network.init(jax.random.key(seed), story, question)
  # Larger than at the start, so that preferences differ.
  return network, jax.tree.map(lambda x: 5 * x, params), story, question


@pytest.mark.parametrize('adaptive', [False, True])
@pytest.mark.parametrize('forced', [False, True])
def test_agrees_with_the_reference(adaptive, forced):
  ends = set()
  slots = np.array([(2, 0, 2), (4, 5, 3)])  # 5: no further statement.
  for seed in range(6):
    network, params, story, question = make(seed, adaptive=adaptive)
    choose = (lambda hop, *_: jnp.asarray(slots[:, hop])) if forced else None
    output = network.apply(params, story, question, choose)
    preference = memory_network.prefer(output.score, output.newer)
    assert preference.shape == (B, H, M + 1, M + 1)
    assert output.logits.shape == (B, V)
    for b in range(B):
      expected, chosen, logits = reference.answer(
        params[NAME],
        story[b],
        question[b],
        H,
        adaptive,
        slots[b] if forced else None,
      )
      assert output.chosen[b].tolist() == chosen
      ends.add(chosen.index(M) if M in chosen else H)
      # float32 against float64, three hops of sums of at most 14 products.
      np.testing.assert_allclose(output.logits[b], logits, rtol=2e-5, atol=2e-5)
      for hop in range(H):
        matrix = np.reshape(list(expected[hop].values()), (M + 1, M + 1))
        np.testing.assert_allclose(
          preference[b, hop], matrix, rtol=2e-5, atol=2e-5
        )
  if adaptive and not forced:  # Some end at once, others later.
    assert len(ends) > 1


def test_supporting_statements_are_chosen_in_their_order():
  network, params, story, question = make(adaptive=True)
  order = np.array([[0, 2, 1, 0, 0], [0, 0, 0, 0, 1]])
  choose = memory_network.choose_supporting(jnp.asarray(order))
  output = network.apply(params, story, question, choose)
  assert output.chosen.tolist() == [[2, 1, M], [4, M, M]]
  assert output.possible.astype(int).tolist() == [
    [[1, 1, 1, 0, 0, 1]] * 3,
    [[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1], [0, 0, 0, 0, 0, 0]],
  ]


def test_without_an_early_end_every_hop_chooses_a_statement():
  for seed in range(4):
    network, params, story, question = make(seed, adaptive=False)
    chosen = network.apply(params, story, question).chosen
    assert (chosen[0] < 3).all()  # Its other slots are empty.
    assert (chosen[1] < M).all()


def test_empty_slots_may_be_left_out():
  network, params, story, question = make()
  story[:, 4:] = 0
  whole = network.apply(params, story, question)
  short = network.apply(params, story[:, :4], question)
  for name in ('logits', 'newer'):
    np.testing.assert_allclose(
      getattr(short, name), getattr(whole, name), rtol=1e-6
    )
  chosen = np.where(whole.chosen == M, 4, whole.chosen)
  np.testing.assert_array_equal(short.chosen, chosen)


def test_tournament_is_won_by_the_best_possible_slot():
  score = jnp.array([[3.0, 1.0, 9.0, 2.0, 7.0], [5.0, 5.0, 5.0, 5.0, 5.0]])
  newer = jnp.array([0.0, 1.0])
  preference = memory_network.prefer(score, newer)
  chosen = memory_network.tournament(preference, jnp.ones((2, 5), bool))
  assert chosen.tolist() == [2, 0]  # Of equal scores the newest.
  some = jnp.array([[1, 1, 0, 1, 0], [0, 1, 0, 1, 1]], bool)
  chosen = memory_network.tournament(preference, some)
  assert chosen.tolist() == [0, 1]
  chosen = memory_network.tournament(preference, jnp.zeros((2, 5), bool))
  assert chosen.tolist() == [4, 4]  # no further statement


def test_preferences_are_antisymmetric():
  generator = np.random.default_rng(0)
  preference = memory_network.prefer(
    generator.normal(size=(B, H, M + 1)), generator.normal(size=(B, H))
  )
  np.testing.assert_allclose(preference, -preference.swapaxes(2, 3))


def test_ranking_loss_agrees_with_the_reference():
  generator = np.random.default_rng(0)
  preference = generator.normal(size=(4, M, M)).astype(np.float32)
  kind = generator.permuted(np.tile([0, 1, 1, 2, 2], (4, 1)), axis=1)
  kind[3] = 2  # no positive candidate
  loss = memory_network.ranking_loss(preference, kind == 1, kind == 2, 0.4)
  for b in range(4):
    expected = reference.ranking_loss(
      preference[b], np.flatnonzero(kind[b] == 1), np.flatnonzero(kind[b] == 2),
      0.4,
    )  # fmt: skip
    np.testing.assert_allclose(loss[b], expected, rtol=1e-6)
  assert loss[3] == 0.0
  assert (loss[:3] > 0).all()


def test_gradient_reaches_all_parameters():
  network, params, story, question = make()
  order = np.array([[0, 2, 1, 0, 0], [1, 0, 0, 2, 3]])
  choose = memory_network.choose_supporting(jnp.asarray(order))
  index = jnp.arange(M + 1)[None, None]

  def loss(params):
    output = network.apply(params, story, question, choose)
    positive = output.chosen[..., None] == index
    ranks = memory_network.ranking_loss(
      memory_network.prefer(output.score, output.newer),
      positive & output.possible,
      output.possible & ~positive,
      margin=20.0,  # No pair is at the kink.
    )
    return ranks.sum() + jnp.square(output.logits).sum()

  for name, gradient in jax.grad(loss)(params)[NAME].items():
    assert jnp.abs(gradient).max() > 1e-4, name
  check_grads(loss, (params,), order=1, modes='rev', atol=0.02, rtol=0.02)


@pytest.mark.parametrize(
  'arguments, message',
  [
    ({'embedding_size': 0}, 'embedding_size must be at least 1. Got: 0'),
    ({'num_hops': -1}, 'num_hops must be at least 1. Got: -1'),
  ],
)
def test_invalid_arguments_are_refused(arguments, message):
  story, question = draw()
  with pytest.raises(ValueError, match=message):
    transform(**arguments).init(jax.random.key(0), story, question)
