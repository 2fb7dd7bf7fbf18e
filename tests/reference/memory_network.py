"""A memory network with hard choices, in loops over hops, pairs and features.

Written from Weston, Chopra and Bordes 2015, "Memory networks", and the notes of
`rmc_jax.models.memory_network`, in NumPy and float64.
"""

import numpy as np


def answer(params, story, question, num_hops, adaptive=True, forced=None):
  """Answers one question.

  Args:
    params: of the module.
    story: [M, F] ids of features.
    question: [F] ids.
    num_hops: H.
    adaptive: whether the hops may end early.
    forced: slots to choose, one per hop; None for the winner.

  Returns:
    Preferences, a dict (i, j) -> number per hop; chosen slots [H]; logits [V].
  """
  params = {name: np.float64(value) for name, value in params.items()}
  d = params['input'].shape[0]
  size = len(story)
  facts = [features(params['statement'], ids) for ids in story]
  candidates = [nonlinear(params['candidate'], fact[:d]) for fact in facts]
  candidates.append(params['end'][0])
  total = features(params['question'], question)
  possible = [m for m in range(size) if any(story[m])]
  possible += [size] if adaptive else []
  preferences, chosen = [], []
  for hop in range(num_hops):
    x = nonlinear(params['input'], total[:d])
    last = chosen[-1] if chosen else 0
    preferences.append(
      {
        (i, j): prefer(x, params['time'], candidates, i, j, last, size)
        for i in range(size + 1)
        for j in range(size + 1)
      }
    )
    slot = forced[hop] if forced is not None else None
    if slot is None:
      slot = winner(preferences[-1], possible, size)
    if slot not in possible:
      slot = size
    chosen.append(slot)
    if slot == size:
      possible = []
    else:
      total = total + facts[slot][d:] * (1 + params['role'][hop])
  logits = params['answer'] @ nonlinear(params['output'], total[d:])
  return preferences, chosen, logits


def features(table, ids):
  """Returns the sum of the rows of the features; 0 is nil."""
  vector = np.zeros(table.shape[1])
  for index in ids:
    if index:
      vector += table[index]
  return vector


def nonlinear(matrix, x):
  return np.tanh(np.tanh(x) @ matrix)


def prefer(x, time, candidates, i, j, last, size):
  """Returns s(i, j); smaller slots are newer, and slot `size` has no time."""
  total = x @ candidates[i] - x @ candidates[j]
  newer, after = x @ time[0], x @ time[1]
  if i < last:
    total += after
  if j < last:
    total -= after
  if i != j and size not in (i, j):
    total += newer if i < j else -newer
  return total


def winner(preference, possible, size):
  """Returns the slot that wins when each meets the best so far."""
  best = None
  for slot in [*range(size - 1, -1, -1), size]:  # The oldest first.
    if slot in possible and (best is None or preference[slot, best] > 0):
      best = slot
  return size if best is None else best


def ranking_loss(preference, positive, negative, margin):
  """Returns the mean over positive of the sum over negative candidates."""
  total = 0.0
  for p in positive:
    for n in negative:
      total += max(0.0, margin - preference[p, n])
  return total / max(len(positive), 1)
