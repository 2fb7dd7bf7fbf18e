"""An encoder and decoder of id sequences, built from recurrent cores."""

from collections.abc import Sequence

import haiku as hk
import jax
import jax.numpy as jnp

from rmc_jax.checks import one_of
from rmc_jax.checks import positive_int
from rmc_jax.types import Array
from rmc_jax.types import ArrayTree
from rmc_jax.unroll import unroll

FEEDS = ('zeros', 'predictions', 'teacher_forcing')


class EncoderDecoder(hk.Module):
  r"""Encoder core, decoder core, ReLU MLP and logits.

  For input ids :math:`x_1 \ldots x_n` and each output step :math:`t`:

  .. math::

     \begin{array}{ll}
     s_i = \mathrm{encoder}(\mathrm{onehot}(x_i), s_{i-1}) & i = 1 \ldots n \\
     h_0 = s_n & \\
     o_t, h_t = \mathrm{decoder}(z_t, h_{t-1}) & t = 1 \ldots T_{out} \\
     y_t = \mathrm{Linear}(\mathrm{MLP}(o_t)) & \text{logits over the tokens}
     \end{array}

  Each call chooses the feed, the decoder inputs :math:`z_t`. Parameters do not
  depend on it, so training and evaluation may use different feeds:

    'zeros': zeros, as in the authors' released example.
    'predictions': the one-hot of argmax :math:`y_{t-1}`, at first of the start
      token, as in the paper's evaluation. The argmax has no gradient.
    'teacher_forcing': the one-hot of the target at t - 1, at first of the start
      token.

  Source: Santoro et al. 2018, "Relational recurrent neural networks", appendix
  A.2, and `sonnet/examples/rmc_learn_to_execute.py` of dm-sonnet 1.

  Notes:
    The paper calls its best training "non-auto-regressive" and "model
    predictions only", which partly fits both 'predictions' and 'zeros'; the
    authors' example uses 'zeros'.
    The paper does not say whether encoder and decoder share weights. Here they
    do, as in the authors' example, unless `decoder_core` is given. A separate
    decoder trained with 'zeros' does not learn to use other feeds.
    The MLP has a ReLU after every layer. The paper's output embedding is taken
    to be its last layer, followed by one Linear to the logits.
  """

  @hk.name_like('__call__')
  def __init__(
    self,
    core: hk.RNNCore,
    num_tokens: int,
    start_token: int,
    hidden_sizes: Sequence[int] = (256, 256, 256, 256),
    decoder_core: hk.RNNCore | None = None,
    remat: bool = False,
    name: str = 'encoder_decoder',
  ):
    """Constructs the model.

    Args:
      core: the encoder.
      num_tokens: the number of tokens and of logits.
      start_token: the id that precedes the first output.
      hidden_sizes: layers of the MLP between the decoder and the logits.
      decoder_core: a core whose state has the shapes of the encoder's; None
        uses the encoder and its weights.
      remat: whether the backward pass recomputes the steps.
      name: name of the module.

    Raises:
      TypeError: `num_tokens` is not an integer.
      ValueError: `num_tokens` is below 1, `start_token` is not an id below it,
        or the states of the two cores differ in shape.
    """
    super().__init__(name=name)
    self._num_tokens = positive_int('num_tokens', num_tokens)
    if start_token not in range(num_tokens):
      raise ValueError(
        f'start_token must be an id in 0..{num_tokens - 1}. '
        f'Got: {start_token!r}.'
      )
    self._start_token = start_token
    self._encoder = core
    self._decoder = core if decoder_core is None else decoder_core
    expected, got = _state_of(self._encoder), _state_of(self._decoder)
    if got != expected:
      raise ValueError(
        "decoder_core must have a state like the encoder's, from which it "
        f'starts. For one example, expected {expected}. Got: {got}.'
      )
    self._remat = remat or None
    self._mlp = hk.nets.MLP(hidden_sizes, activate_final=True, name='mlp')
    self._logits = hk.Linear(num_tokens, name='logits')

  def __call__(
    self,
    inputs: Array,
    input_lengths: Array,
    targets: Array,
    feed: str = 'zeros',  # As the authors' code; the paper: 'predictions'.
  ) -> Array:
    """Computes the logits of every output step.

    Ids outside 0..num_tokens - 1 have a one-hot of zeros.

    Args:
      inputs: [B, T_in] ids; those after an example's length are ignored.
      input_lengths: [B] the number of ids of each example, in 0..T_in.
      targets: [B, T_out] ids. The feed 'teacher_forcing' reads all but the
        last; the other feeds use the shape alone.
      feed: the decoder inputs, one of FEEDS.

    Returns:
      [B, T_out, num_tokens].

    Raises:
      TypeError: ids or lengths are not integers.
      ValueError: `feed` is unknown, or shapes do not match.
    """
    one_of('feed', feed, FEEDS)
    _check_integers(inputs, input_lengths, targets)
    batch_size, num_steps = targets.shape
    _, state = unroll(
      self._encoder,
      self._one_hot(inputs.swapaxes(0, 1)),  # [T_in, B, num_tokens]
      self._encoder.initial_state(batch_size),
      lengths=input_lengths,
      remat=self._remat,
    )
    if feed == 'predictions':
      logits = self._follow_predictions(state, num_steps, batch_size)
    else:
      if feed == 'zeros':
        decoder_inputs = jnp.zeros((num_steps, batch_size, self._num_tokens))
      else:
        shifted = jnp.pad(
          targets[:, :-1], ((0, 0), (1, 0)), constant_values=self._start_token
        )
        decoder_inputs = self._one_hot(shifted.swapaxes(0, 1))
      outputs, _ = unroll(
        self._decoder, decoder_inputs, state, remat=self._remat
      )
      logits = self._read_out(outputs)  # [T_out, B, num_tokens]
    return logits.swapaxes(0, 1)

  @hk.transparent
  def _one_hot(self, ids: Array) -> Array:
    return jax.nn.one_hot(ids, self._num_tokens)

  @hk.transparent
  def _follow_predictions(
    self, state: ArrayTree, num_steps: int, batch_size: int
  ) -> Array:
    """Returns logits [T_out, B, num_tokens] of autoregressive decoding."""

    def step(_, carry):
      state, token = carry
      output, state = self._decoder(self._one_hot(token), state)
      logits = self._read_out(output)  # [B, num_tokens]
      return logits, (state, jax.lax.argmax(logits, 1, jnp.int32))

    start = jnp.full(batch_size, self._start_token, jnp.int32)
    logits, _ = unroll(
      step, jnp.arange(num_steps), (state, start), remat=self._remat
    )
    return logits

  @hk.transparent
  def _read_out(self, outputs: Array) -> Array:
    return self._logits(self._mlp(outputs))


def _state_of(core: hk.RNNCore) -> str:
  """Formats the structure, dtypes and shapes of the state for one example."""
  return str(
    jax.tree.map(lambda x: f'{x.dtype}{list(x.shape)}', core.initial_state(1))
  )


def _check_integers(inputs: Array, input_lengths: Array, targets: Array):
  """Raises unless all three are integers of matching shapes."""
  arrays = {
    'inputs': inputs,
    'input_lengths': input_lengths,
    'targets': targets,
  }
  for name, array in arrays.items():
    if not jnp.issubdtype(array.dtype, jnp.integer):
      raise TypeError(f'{name} are {array.dtype}, expected integers.')
  shapes = {name: array.shape for name, array in arrays.items()}
  if (
    inputs.ndim != 2
    or targets.ndim != 2
    or input_lengths.shape != inputs.shape[:1]
    or targets.shape[:1] != inputs.shape[:1]
    or 0 in inputs.shape + targets.shape
  ):
    raise ValueError(
      'Expected inputs [B, T_in], input_lengths [B] and targets [B, T_out] '
      f'with equal B and at least one step. Got: {shapes}.'
    )
