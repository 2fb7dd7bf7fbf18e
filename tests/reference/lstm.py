"""One step of layered LSTMs with skip connections in NumPy, unit by unit.

Written from the equations with explicit loops over examples, layers and units,
in the precision of what it is given (tests give float64).
"""

import numpy as np

from tests.reference.relational_memory import sigmoid


def lstm_step(params, inputs, state, feedback=None, name='lstm'):
  """Runs one step on inputs [B, X], feedback [B, Z] and states [B, Y].

  Returns the output [B, layers * Y] and the next state, nested like `state`.
  """
  outputs = []
  next_state = [([], []) for _ in state]
  for b in range(len(inputs)):
    below = []  # the new outputs of the layers so far
    for layer, (hidden, cell) in enumerate(state):
      seen = list(inputs[b])
      seen += [] if feedback is None else list(feedback[b])
      seen += list(below[-1]) if below else []
      seen += list(hidden[b])
      weight = np.concatenate(
        [
          params[f'{name}/input_{layer}']['w'],
          params[f'{name}/recurrent_{layer}']['w'],
        ]
      )
      bias = params[f'{name}/input_{layer}']['b']
      size = len(hidden[b])
      new_hidden, new_cell = np.zeros(size), np.zeros(size)
      for unit in range(size):
        gates = []
        for gate in range(4):
          column = gate * size + unit
          total = bias[column]
          for row, number in enumerate(seen):
            total += number * weight[row, column]
          gates.append(total)
        write, candidate, keep, show = gates
        new_cell[unit] = sigmoid(keep + 1.0) * cell[b][unit]
        new_cell[unit] += sigmoid(write) * np.tanh(candidate)
        new_hidden[unit] = sigmoid(show) * np.tanh(new_cell[unit])
      below.append(new_hidden)
      next_state[layer][0].append(new_hidden)
      next_state[layer][1].append(new_cell)
    outputs.append(np.concatenate(below))
  return np.array(outputs), [(np.array(h), np.array(c)) for h, c in next_state]
