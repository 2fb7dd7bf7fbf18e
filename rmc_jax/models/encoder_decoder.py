"""Reads a sequence of ids with a core, then writes one from the last state."""

from collections.abc import Sequence

import haiku as hk
import jax
import jax.numpy as jnp

from rmc_jax.cores.memory_matrix import positive_int
from rmc_jax.types import Array
from rmc_jax.types import ArrayTree
from rmc_jax.unroll import unroll

FEEDS = ('zeros', 'predictions', 'truth')


class EncoderDecoder(hk.Module):
  r"""Encoder core, decoder core that starts from its state, ReLU MLP, logits.

  For an input of ids :math:`x_1 \ldots x_n` and each output step :math:`t`:

  .. math::

     \begin{array}{ll}
     s_i = \mathrm{encoder}(\mathrm{onehot}(x_i), s_{i-1}) & i = 1 \ldots n \\
     h_0 = s_n & \\
     o_t, h_t = \mathrm{decoder}(z_t, h_{t-1}) & t = 1 \ldots T_{out} \\
     y_t = \mathrm{Linear}(\mathrm{MLP}(o_t)) & \text{logits over the tokens}
     \end{array}

  What the decoder is fed, :math:`z_t`, is chosen at each call and changes no
  parameter, so one feed may train what another evaluates:

    'zeros': nothing, as in the authors' released example.
    'predictions': the one-hot of argmax :math:`y_{t-1}`, the start token at
      first; what the paper evaluates with. No gradient goes through the argmax.
    'truth': the one-hot of the target at t - 1, the start token at first;
      teacher forcing.

  Source: Santoro et al. 2018, "Relational recurrent neural networks", appendix
  A.2, and `sonnet/examples/rmc_learn_to_execute.py` of dm-sonnet 1.

  Notes:
    The paper's words for its best way to train, "non-auto-regressive" and
    "model predictions only", fit 'predictions' and 'zeros' in part each; the
    authors' example, with 'zeros', is the only code of theirs to go by.
    The paper does not say whether encoder and decoder share their weights; here
    they do, as in the authors' example, unless a `decoder_core` is given. Such
    a one, trained with 'zeros', never learns what to do with another feed.
    The MLP has a ReLU after every layer, and what the paper calls the output
    embedding is read as its last layer, from which one Linear makes logits.
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
      core: any recurrent core, the encoder.
      num_tokens: how many tokens there are, the number of logits.
      start_token: the id that the decoder is fed before it has written any.
      hidden_sizes: layers of the MLP between the decoder and the logits.
      decoder_core: a core whose state has the shapes of the encoder's; None
        means the encoder again, with the same weights.
      remat: whether the steps are recomputed in the backward pass.
      name: name of the module.

    Raises:
      TypeError: `num_tokens` is not an integer.
      ValueError: `num_tokens` is below 1, `start_token` is no id below it, or
        the decoder cannot start from a state of the encoder.
    """
    super().__init__(name=name)
    self._num_tokens = positive_int('num_tokens', num_tokens)
    if start_token not in range(num_tokens):
      raise ValueError(
        f'start_token must be an id in 0..{num_tokens - 1}, as there are '
        f'{num_tokens} tokens. Got: {start_token!r}.'
      )
    self._start_token = start_token
    self._encoder = core
    self._decoder = core if decoder_core is None else decoder_core
    expected, got = _state_of(self._encoder), _state_of(self._decoder)
    if got != expected:
      raise ValueError(
        "The decoder starts from the encoder's state, so decoder_core must "
        'have a state of the same structure and shapes. For one example the '
        f'encoder has {expected}, the decoder {got}.'
      )
    self._remat = remat or None
    self._mlp = hk.nets.MLP(hidden_sizes, activate_final=True, name='mlp')
    self._logits = hk.Linear(num_tokens, name='logits')

  def __call__(
    self,
    inputs: Array,
    input_lengths: Array,
    targets: Array,
    feed: str = 'zeros',  # The paper: 'predictions'; its authors' code: this.
  ) -> Array:
    """Logits for every output step.

    An id out of 0..num_tokens - 1 is no error, since values are not known when
    this is traced: its one-hot is zero.

    Args:
      inputs: [B, T_in] ids; what comes after an example's length is not read.
      input_lengths: [B] the ids of each example, in 0..T_in.
      targets: [B, T_out] ids. Only with the feed 'truth' are they read, and the
        last step's not even then; else they just say how many steps to write.
      feed: what the decoder sees, one of FEEDS.

    Returns:
      [B, T_out, num_tokens].

    Raises:
      TypeError: ids or lengths are not integers.
      ValueError: an unknown feed, or shapes that do not fit each other.
    """
    if feed not in FEEDS:
      raise ValueError(f'feed must be one of {FEEDS}. Got: {feed!r}.')
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
        fed = jnp.zeros((num_steps, batch_size, self._num_tokens))
      else:
        fed = self._one_hot(self._shift(targets).swapaxes(0, 1))
      outputs, _ = unroll(self._decoder, fed, state, remat=self._remat)
      logits = self._read_out(outputs)  # [T_out, B, num_tokens]
    return logits.swapaxes(0, 1)

  @hk.transparent
  def _one_hot(self, ids: Array) -> Array:
    return jax.nn.one_hot(ids, self._num_tokens)

  @hk.transparent
  def _follow_predictions(
    self, state: ArrayTree, num_steps: int, batch_size: int
  ) -> Array:
    """[T_out, B, num_tokens], each step fed with the best token of the last."""

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
  def _shift(self, targets: Array) -> Array:
    """[B, T_out], the start token and all targets but the last."""
    return jnp.pad(
      targets[:, :-1], ((0, 0), (1, 0)), constant_values=self._start_token
    )

  @hk.transparent
  def _read_out(self, outputs: Array) -> Array:
    return self._logits(self._mlp(outputs))


def _state_of(core: hk.RNNCore) -> str:
  """Structure, types and shapes of the state for one example, in words."""
  return str(
    jax.tree.map(lambda x: f'{x.dtype}{list(x.shape)}', core.initial_state(1))
  )


def _check_integers(inputs: Array, input_lengths: Array, targets: Array):
  """Raises unless all three are integers and of shapes that belong together."""
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
      'Expected inputs [B, T_in], input_lengths [B] and targets [B, T_out], '
      f'of one batch and at least one step each. Got: {shapes}.'
    )
