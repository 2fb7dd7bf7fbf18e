"""The Nth Farthest task of the paper's appendix A.1 in NumPy."""

import numpy as np


def answer(vectors, labels, n, m, order):
  """Sorts all vectors by distance from the one labelled m and takes rank n."""
  reference = vectors[list(labels).index(m)]
  distances = [np.sqrt(((v - reference) ** 2).sum()) for v in vectors]
  ranked = sorted(zip(distances, labels, strict=True))
  if order == 'farthest':
    ranked.reverse()
  return ranked[n][1]


def encode(vectors, labels, n, m):
  """Returns (x_t; l_t; n; m) for every step, one-hot except for x_t."""
  num_objects = len(labels)
  identity = np.eye(num_objects)
  return np.stack(
    [
      np.concatenate([vector, identity[label], identity[n], identity[m]])
      for vector, label in zip(vectors, labels, strict=True)
    ]
  )
