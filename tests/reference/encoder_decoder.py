"""The encoder-decoder of appendix A.2 in NumPy, token by token.

Its core is an Elman network with a linear output, the simplest recurrence whose
output is not its state. Nothing here is shared with the package.
"""

import numpy as np


def encoder_decoder(
  params,
  inputs,
  input_lengths,
  targets,
  feed,
  *,
  num_tokens,
  start_token,
  num_layers,
  decoder='elman',
):
  """Returns logits [B, T_out, num_tokens] for [B, T_in] and [B, T_out]."""
  one_hot = np.eye(num_tokens)
  state_size = len(params['elman/hidden']['w'])
  all_logits = []
  for ids, length, target in zip(inputs, input_lengths, targets, strict=True):
    state = np.zeros(state_size)
    for i in range(length):
      _, state = elman_step(params, 'elman', one_hot[ids[i]], state)
    token = start_token
    logits = []
    for correct in target:
      seen = np.zeros(num_tokens) if feed == 'zeros' else one_hot[token]
      output, state = elman_step(params, decoder, seen, state)
      logits.append(read_out(params, output, num_layers))
      token = correct if feed == 'teacher_forcing' else np.argmax(logits[-1])
    all_logits.append(logits)
  return np.array(all_logits)


def elman_step(params, name, inputs, state):
  """Returns output and next state for inputs [features] and state [S]."""
  state = np.tanh(
    linear(params[f'{name}/input'], inputs)
    + state @ params[f'{name}/hidden']['w']
  )
  return linear(params[f'{name}/output'], state), state


def read_out(params, output, num_layers):
  """Applies ReLU layers and the logits."""
  for i in range(num_layers):
    layer = params[f'encoder_decoder/mlp/~/linear_{i}']
    output = np.maximum(linear(layer, output), 0)
  return linear(params['encoder_decoder/logits'], output)


def linear(layer, x):
  """Maps [X] to [Y]."""
  return x @ layer['w'] + layer['b']
