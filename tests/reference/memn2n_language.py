"""The MemN2N language model in loops over hops, words and units.

Written from Sukhbaatar et al. 2015, sections 2 and 5, in NumPy and float64.
"""

import numpy as np

from tests.reference.memn2n import softmax


def next_word(params, words, *, num_hops, num_linear):
  """Returns the logits [V] and the attention [K, N] of one example."""
  params = {name: np.array(value, float) for name, value in params.items()}
  size = params['hop'].shape[0]
  u = np.array([0.1] * size)
  attention = []
  for _ in range(num_hops):
    scores, outputs = [], []
    for position, word in enumerate(words):
      m = params['input'][word] + params['input_time'][position]
      c = params['output'][word] + params['output_time'][position]
      scores.append(sum(u[k] * m[k] for k in range(size)))
      outputs.append(c)
    p = softmax(scores)
    attention.append(p)
    u_next = np.zeros(size)
    for k in range(size):
      for j in range(size):
        u_next[k] += params['hop'][k, j] * u[j]
      for weight, c in zip(p, outputs, strict=True):
        u_next[k] += weight * c[k]
      if k >= num_linear:
        u_next[k] = max(u_next[k], 0.0)
    u = u_next
  return params['next_word'] @ u, np.stack(attention)
