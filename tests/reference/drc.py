"""DRC by its definition, cell by cell, in float64 NumPy."""

import numpy as np


def unroll(params, xs, num_layers, num_repeats, channels):
  """Returns outputs [T, B, ...] and hidden and cell of each layer."""
  steps, batch, rows, columns, _ = xs.shape
  zeros = np.zeros((batch, rows, columns, channels))
  state = [(zeros, zeros)] * num_layers
  edge = np.zeros((batch, rows, columns, 1))
  edge[:, [0, -1], :] = edge[:, :, [0, -1]] = 1
  outputs = []
  for x in xs:
    for _ in range(num_repeats):
      below = state[-1][0]
      for d in range(num_layers):
        hidden, cell = state[d]
        pooled = np.concatenate(
          [hidden.mean(axis=(1, 2)), hidden.max(axis=(1, 2))], axis=-1
        )
        pooled = pooled @ params[f'drc/pool_{d}']['w']
        pooled = np.ones((1, rows, columns, 1)) * pooled[:, None, None]
        seen = np.concatenate([below, pooled, hidden, edge], axis=-1)
        gates = (
          convolve(x, params[f'drc/input_{d}']['w'])
          + params[f'drc/input_{d}']['b']
          + convolve(seen, params[f'drc/recurrent_{d}']['w'])
        )
        i, g, f, o = np.split(gates, 4, axis=-1)
        cell = sigmoid(f + 1) * cell + sigmoid(i) * np.tanh(g)
        below = sigmoid(o) * np.tanh(cell)
        state[d] = below, cell
    outputs.append(np.concatenate([state[-1][0], x], -1).reshape(batch, -1))
  return np.stack(outputs), state


def convolve(x, w):
  """Returns the convolution with SAME padding; the kernel is square."""
  batch, rows, columns, _ = x.shape
  size = len(w)
  before = (size - 1) // 2
  out = np.zeros((batch, rows, columns, w.shape[-1]))
  for r in range(rows):
    for c in range(columns):
      for i in range(size):
        for j in range(size):
          y, z = r + i - before, c + j - before
          if 0 <= y < rows and 0 <= z < columns:
            out[:, r, c] += x[:, y, z] @ w[i, j]
  return out


def sigmoid(x):
  return 1 / (1 + np.exp(-x))
