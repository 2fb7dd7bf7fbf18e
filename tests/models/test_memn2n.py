"""Tests rmc_jax/models/memn2n.py."""

import haiku as hk
import jax
import jax.numpy as jnp
from jax.test_util import check_grads
import numpy as np
import pytest

from rmc_jax.models import memn2n
from rmc_jax.models.memn2n import MemN2N
from rmc_jax.models.memn2n import Sizes
from tests.reference import memn2n as reference

# Distinct sizes: B examples, M statements, J words, V symbols, d units.
B, M, J, V, D, K = 2, 5, 4, 11, 7, 3


def transform(**arguments):
  arguments = {'embedding_size': D, 'num_hops': K} | arguments

  @hk.without_apply_rng
  @hk.transform
  def network(story, question, time=None, **options):
    return MemN2N(V, M, **arguments)(story, question, time, **options)

  return hk.Transformed(jax.jit(network.init), jax.jit(network.apply))


def draw(seed=0):
  """Returns a story with empty slots, padded sentences, and a question."""
  generator = np.random.default_rng(seed)
  story = generator.integers(1, V, (B, M, J))
  question = generator.integers(1, V, (B, J))
  story[0, 3:] = 0  # two empty slots
  story[0, 1, 2:] = story[1, 4, 3:] = question[1, 1:] = 0
  return story.astype(np.int32), question.astype(np.int32)


def make(seed=0, **arguments):
  network = transform(**arguments)
  story, question = draw(seed)
  params = network.init(jax.random.key(3), story, question)
  # Larger than at the start, so that no softmax is nearly uniform.
  params = jax.tree.map(lambda x: 5 * x, params)
  return network, params, story, question


@pytest.mark.parametrize('tying', memn2n.TYINGS)
@pytest.mark.parametrize('encoding', memn2n.ENCODINGS)
@pytest.mark.parametrize(
  'temporal, linear, num_relu',
  [(True, False, 0), (True, True, 0), (False, False, 3)],
)
def test_agrees_with_the_reference(tying, encoding, temporal, linear, num_relu):
  network, params, story, question = make(
    tying=tying, encoding=encoding, temporal=temporal, num_relu=num_relu
  )
  time = np.array([[1, 3, 5, 0, 0], [1, 2, 3, 4, 5]], np.int32)
  logits, attention = network.apply(
    params, story, question, time, linear=linear
  )
  assert logits.shape == (B, V + M if temporal and tying == 'adjacent' else V)
  assert attention.shape == (B, K, M)
  for i in range(B):
    expected = reference.answer(
      params['memn2n'],
      story[i],
      question[i],
      time[i],
      vocabulary=V,
      encoding=encoding,
      temporal=temporal,
      tying=tying,
      num_hops=K,
      num_relu=num_relu,
      linear=linear,
    )
    # float32 against float64, sums of at most 50 products; logits without a
    # softmax are polynomials of degree 3^3 of them.
    rtol = 2e-3 if linear else 2e-5
    scale = np.abs(expected[0]).max()
    np.testing.assert_allclose(logits[i], expected[0], atol=rtol * scale)
    np.testing.assert_allclose(
      attention[i],
      expected[1],
      rtol=rtol,
      atol=rtol * np.abs(expected[1]).max(),
    )


@pytest.mark.parametrize(
  'encoding, expected',
  [
    ('position', [[4 / 3, 1, 2 / 3], [2 / 3, 1, 4 / 3]]),
    ('paper_position', [[1 / 2, 1 / 2, 1 / 2], [1 / 3, 2 / 3, 1]]),
    ('bow', [[1, 1, 1], [1, 1, 1]]),
  ],
)
def test_published_position_weights(encoding, expected):
  # d=2 and J=3, from the formulas of the paper and of its code by hand.
  columns = 3
  weights = [
    [
      reference.position_weight(encoding, k, j, 2, columns, 3)
      for j in (1, 2, 3)
    ]
    for k in (1, 2)
  ]
  np.testing.assert_allclose(weights, expected)


def test_words_may_be_permuted_in_a_bag_but_not_with_positions():
  for encoding in memn2n.ENCODINGS:
    network, params, story, question = make(encoding=encoding)
    swapped = story.copy()
    swapped[1, 0, [0, 1]] = story[1, 0, [1, 0]]
    before, _ = network.apply(params, story, question)
    after, _ = network.apply(params, swapped, question)
    close = np.allclose(before, after, rtol=1e-5, atol=1e-5)
    assert close == (encoding == 'bow')


@pytest.mark.parametrize('temporal', [False, True])
def test_statements_may_be_permuted_only_without_time(temporal):
  network, params, story, question = make(temporal=temporal)
  swapped = story.copy()
  swapped[1, [0, 1]] = story[1, [1, 0]]
  before, attention = network.apply(params, story, question)
  after, other = network.apply(params, swapped, question)
  assert np.allclose(before[1], after[1], atol=1e-5) == (not temporal)
  if not temporal:
    np.testing.assert_allclose(attention[1, :, 0], other[1, :, 1], atol=1e-6)


def test_one_hop_has_the_closed_form():
  network, params, story, question = make(
    num_hops=1, encoding='bow', temporal=False
  )
  a, c = (
    np.where(np.arange(V)[:, None] == 0, 0, params['memn2n'][f'embedding_{k}'])
    for k in range(2)
  )
  u = a[question].sum(1)  # [B, d]
  scores = np.einsum('bd,bmd->bm', u, a[story].sum(2))
  p = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
  expected = (u + np.einsum('bm,bmd->bd', p, c[story].sum(2))) @ c.T
  got, _ = network.apply(params, story, question)
  np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


def test_padding_beyond_the_sizes_of_a_task_changes_nothing():
  network, params, story, question = make()
  small = Sizes(vocabulary=8, memory=3, sentence=3)
  story, question = story[:, :3, :3] % 8, question[:, :3] % 8

  def cut(table):
    return jnp.concatenate([table[:8], table[V : V + 3]])

  own = hk.without_apply_rng(
    hk.transform(lambda *inputs: MemN2N(8, 3, D, K)(*inputs))
  )
  expected = own.apply(jax.tree.map(cut, params), story, question)
  padded = jnp.pad(story, ((0, 0), (0, M - 3), (0, J - 3)))
  logits, attention = network.apply(
    params, padded, jnp.pad(question, ((0, 0), (0, J - 3))), sizes=small
  )
  valid = np.r_[0:8, V : V + 3]
  np.testing.assert_allclose(
    logits[:, valid], expected[0], rtol=2e-5, atol=2e-5
  )
  np.testing.assert_allclose(attention[..., :3], expected[1], atol=1e-6)
  assert not attention[..., 3:].any()
  assert np.isneginf(np.delete(logits, valid, axis=1)).all()


def test_empty_slots_take_part_in_the_softmax():
  network, params, story, question = make()
  _, attention = network.apply(params, story, question)
  np.testing.assert_allclose(attention.sum(-1), 1, rtol=1e-6)
  assert (attention[0, :, 3:] > 0).all()
  np.testing.assert_array_equal(attention[0, :, 3], attention[0, :, 4])


@pytest.mark.parametrize('tying', memn2n.TYINGS)
@pytest.mark.parametrize('linear', [False, True])
def test_gradients_agree_with_finite_differences(tying, linear):
  with jax.enable_x64(True):
    network, params, story, question = make(tying=tying, num_relu=2)
    params = jax.tree.map(lambda x: x.astype(jnp.float64) / 3, params)
    weights = jax.random.normal(jax.random.key(7), (B, V))

    def loss(params):
      logits, _ = network.apply(params, story, question, linear=linear)
      return (jax.nn.log_softmax(logits)[:, :V] * weights).sum()

    # In float64, so that only the differences limit the agreement.
    check_grads(loss, (params,), order=1, modes=['rev'], rtol=1e-5)


def test_nil_gets_no_gradient():
  network, params, story, question = make()

  def loss(params):
    logits, _ = network.apply(params, story, question)
    return jax.nn.logsumexp(logits, axis=-1).sum()

  for gradient in jax.tree.leaves(jax.grad(loss)(params)):
    assert not gradient[0].any()
    assert gradient[1:].any()


def test_linear_may_differ_between_members():
  network, params, story, question = make()
  stacked = jax.tree.map(lambda x: jnp.stack([x, x]), params)
  apply = jax.vmap(
    lambda params, linear: network.apply(
      params, story, question, linear=linear
    )[0]
  )
  both = apply(stacked, jnp.array([True, False]))
  for member, linear in enumerate((True, False)):
    alone, _ = network.apply(params, story, question, linear=linear)
    np.testing.assert_allclose(both[member], alone, rtol=1e-4)


def test_parameters_of_the_joint_model():
  network = hk.transform(lambda *inputs: MemN2N(177, 50, 50)(*inputs))
  shapes = jax.eval_shape(
    network.init,
    jax.random.key(0),
    jnp.zeros((1, 50, 11), int),
    jnp.zeros((1, 11), int),
  )
  # 4 tables of 177 symbols, nil included, and 50 times.
  sizes = [leaf.size for leaf in jax.tree.leaves(shapes)]
  assert sum(sizes) == 4 * 227 * 50 == 45_400


@pytest.mark.parametrize(
  'arguments, message',
  [
    ({'tying': 'none'}, "tying must be one of adjacent, layerwise.*'none'"),
    ({'encoding': 'pe'}, "encoding must be one of bow.*'pe'"),
    ({'num_hops': 0}, 'num_hops must be at least 1. Got: 0'),
    ({'num_relu': 8}, 'num_relu must be one of 0.* Got: 8'),
  ],
)
def test_invalid_arguments_are_refused(arguments, message):
  with pytest.raises(ValueError, match=message):
    transform(**arguments).init(jax.random.key(0), *draw())
