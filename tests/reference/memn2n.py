"""A MemN2N in loops over examples, hops, statements, words and units.

Written from Sukhbaatar et al. 2015, sections 2 and 4.1, and the description of
the authors' code, in NumPy and float64.
"""

import numpy as np


def position_weight(encoding, k, j, size, columns, words):
  """Returns l_kj, with k and j from 1, of d = `size` units.

  Args:
    encoding: 'bow', 'position' or 'paper_position'.
    k: the unit.
    j: the word.
    size: d.
    columns: words of the longest sentence of the task, and 1 for the time.
    words: words of this sentence.
  """
  if encoding == 'bow':
    return 1.0
  if encoding == 'position':
    middle_unit, middle_word = (size + 1) / 2, (columns + 1) / 2
    return 1 + 4 * (k - middle_unit) * (j - middle_word) / (size * columns)
  return (1 - j / words) - (k / size) * (1 - 2 * j / words)


def embed(table, ids, encoding, columns):
  """Returns the weighted sum [d] of the rows of a sentence's words."""
  size = table.shape[1]
  words = [word for word in ids if word]
  vector = np.zeros(size)
  for j, word in enumerate(words, 1):
    for k in range(1, size + 1):
      weight = position_weight(encoding, k, j, size, columns, len(words))
      vector[k - 1] += weight * table[word, k - 1]
  return vector


def time_vector(table, vocabulary, time, encoding, columns):
  """Returns the time vector [d] of a statement; zeros for an empty slot."""
  size = table.shape[1]
  vector = np.zeros(size)
  for k in range(1, size + 1):
    # In the authors' code the time is a word in the last column.
    weight = 1.0
    if encoding == 'position':
      weight = position_weight(encoding, k, columns, size, columns, columns)
    if time:
      vector[k - 1] = weight * table[vocabulary + time - 1, k - 1]
  return vector


def softmax(scores):
  exponentials = [np.exp(score - max(scores)) for score in scores]
  return np.array([each / sum(exponentials) for each in exponentials])


def answer(
  params,
  story,
  question,
  time,
  *,
  vocabulary,
  encoding,
  temporal,
  tying,
  num_hops,
  num_relu,
  linear,
):
  """Returns the logits [V (+ M)] and the attention [K, M] of one example."""
  params = {name: np.array(value, float) for name, value in params.items()}
  for name, table in params.items():
    if name != 'hop':
      table[0] = 0.0
  columns = story.shape[1] + 1
  if tying == 'adjacent':
    tables = [params[f'embedding_{k}'] for k in range(num_hops + 1)]
    b, w = tables[0], tables[-1]
  else:
    b, w = params['question'], params['answer']
  u = embed(b, question, encoding, columns)
  attention = []
  for hop in range(num_hops):
    if tying == 'adjacent':
      a, c = tables[hop], tables[hop + 1]
    else:
      a, c = params['input'], params['output']
    slots = []
    for table in (a, c):
      vectors = []
      for statement, t in zip(story, time, strict=True):
        vector = embed(table, statement, encoding, columns)
        if temporal:
          vector += time_vector(table, vocabulary, t, encoding, columns)
        vectors.append(vector)
      slots.append(vectors)
    scores = [float(u @ m) for m in slots[0]]
    p = np.array(scores) if linear else softmax(scores)
    output = sum(weight * c for weight, c in zip(p, slots[1], strict=True))
    if tying == 'layerwise':
      u = params['hop'] @ u
    u = u + output
    for k in range(len(u) - num_relu, len(u)):
      u[k] = max(u[k], 0.0)
    attention.append(p)
  return w @ u, np.stack(attention)
