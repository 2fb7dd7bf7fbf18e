"""One step of a bank of LSTMs in NumPy, cell by cell.

Written from the equations of the LSTM and appendix A.2 of Santoro et al. 2018,
with loops over examples and cells, in the precision of what it is given.
"""

import numpy as np


def lstm_bank_step(params, inputs, hidden, cell, *, summed, name='lstm_bank'):
  """Runs one step on inputs [B, features], hidden and cell [B, N, D].

  Parameters are those of the core; those with keys share their weights.
  Returns the output [B, D] and the next hidden and cell.
  """
  outputs = np.zeros_like(hidden[:, 0])
  next_hidden, next_cell = np.zeros_like(hidden), np.zeros_like(cell)
  _, num_cells, size = hidden.shape
  w, b = params[f'{name}/input']['w'], params[f'{name}/input']['b']
  u = params[f'{name}/recurrent']['w']
  for example, x in enumerate(inputs):
    for j in range(num_cells):
      if f'{name}/keys' in params:
        key = params[f'{name}/keys']['embeddings'][j]
        gates = x @ w + b + key @ params[f'{name}/key_gates']['w']
        gates = gates + hidden[example, j] @ u
      else:
        own = slice(j * 4 * size, (j + 1) * 4 * size)
        gates = x @ w[:, own] + b[own] + hidden[example, j] @ u[j]
      i, g, f, o = (gates[n * size : (n + 1) * size] for n in range(4))
      c = sigmoid(f + 1.0) * cell[example, j] + sigmoid(i) * np.tanh(g)
      h = sigmoid(o) * np.tanh(c)
      next_hidden[example, j], next_cell[example, j] = h, c
      outputs[example] += {'hidden': h, 'cell': c}[summed]
  return outputs, next_hidden, next_cell


def sigmoid(x):
  return 1.0 / (1.0 + np.exp(-x))
