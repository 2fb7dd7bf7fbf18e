"""Classifies a sequence from the last output of a recurrent core."""

from collections.abc import Sequence

import haiku as hk

from rmc_jax.cores import StepTrace
from rmc_jax.types import Array
from rmc_jax.unroll import unroll


class SequenceClassifier(hk.Module):
  """Core, ReLU MLP on its last output, and logits.

  Santoro et al. 2018, appendix A.1: all models of the Nth Farthest task have
  "an equivalent 4-layer MLP (256 units per layer with ReLU non-linearities)".
  """

  @hk.name_like('__call__')
  def __init__(
    self,
    core: hk.RNNCore,
    num_classes: int,
    hidden_sizes: Sequence[int] = (256, 256, 256, 256),
    remat: bool = False,
    name: str = 'sequence_classifier',
  ):
    """Constructs the model.

    Args:
      core: any recurrent core.
      num_classes: C, the number of logits.
      hidden_sizes: layers of the MLP.
      remat: whether the backward pass recomputes the core's steps.
      name: name of the module.
    """
    super().__init__(name=name)
    self._core = core
    self._remat = remat
    self._mlp = hk.nets.MLP(hidden_sizes, activate_final=True, name='mlp')
    self._logits = hk.Linear(num_classes, name='logits')

  def __call__(self, inputs: Array) -> Array:
    """Computes logits [B, C] of inputs [B, T, features]."""
    outputs, _ = self._unroll(inputs, remat=self._remat or None)
    return self._read_out(outputs[-1])

  def trace(self, inputs: Array) -> tuple[Array, StepTrace]:
    """Computes logits and the trace of each step, [T, B, ...]."""
    (outputs, trace), _ = self._unroll(inputs, return_trace=True)
    return self._read_out(outputs[-1]), trace

  @hk.transparent
  def _unroll(self, inputs: Array, **options):
    state = self._core.initial_state(inputs.shape[0])
    return unroll(self._core, inputs.swapaxes(0, 1), state, **options)

  @hk.transparent
  def _read_out(self, output: Array) -> Array:
    return self._logits(self._mlp(output))
