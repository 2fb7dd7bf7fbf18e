"""Large-vocabulary softmaxes in NumPy, word by word.

Follows the equations with loops over rows and words, in float64.
"""

import numpy as np


def log_probs(logits):
  """Returns the log softmax of each row of [R, V]."""
  result = []
  for row in np.asarray(logits, np.float64):
    total = 0.0
    for logit in row:
      total += np.exp(logit - max(row))
    result.append([logit - max(row) - np.log(total) for logit in row])
  return np.array(result)


def cross_entropy(hidden, embeddings, labels, weights):
  """Returns the sum of -w log p(label) and its gradients, by name."""
  total = 0.0
  slopes = {
    'hidden': np.zeros(hidden.shape),
    'embeddings': np.zeros(embeddings.shape),
  }
  of_words = log_probs([[h @ e for e in embeddings] for h in hidden])
  for i, (label, weight) in enumerate(zip(labels, weights, strict=True)):
    if weight == 0.0:
      continue
    total -= weight * of_words[i, label]
    for v, log_prob in enumerate(of_words[i]):
      slope = weight * (np.exp(log_prob) - (v == label))
      slopes['hidden'][i] += slope * embeddings[v]
      slopes['embeddings'][v] += slope * hidden[i]
  return total, slopes


def adaptive_distribution(hidden, head, tails):
  """Returns the probabilities of all V words, [R, V] (Grave et al. 2017).

  `tails` are pairs of a projection [D, d] and embeddings [n, d]; the last rows
  of the head [c + len(tails), D] are the tails'.
  """
  result = []
  for h in np.asarray(hidden, np.float64):
    of_head = np.exp(log_probs([[h @ word for word in head]])[0])
    num_words = len(head) - len(tails)
    distribution = list(of_head[:num_words])
    for i, (projection, embeddings) in enumerate(tails):
      projected = h @ projection
      of_tail = np.exp(log_probs([[projected @ w for w in embeddings]])[0])
      distribution += [of_head[num_words + i] * p for p in of_tail]
    result.append(distribution)
  return np.array(result)


def log_uniform(vocab_size):
  """Returns P(k) = log((k + 2) / (k + 1)) / log(V + 1) of each word."""
  return np.array(
    [
      np.log((k + 2) / (k + 1)) / np.log(vocab_size + 1)
      for k in range(vocab_size)
    ]
  )


def sampled_log_probs(hidden, embeddings, labels, ids, threshold):
  """Returns log p(label) among the label and the sampled words, each once.

  The log of the expected count of a word is subtracted from its logit.
  """
  p = log_uniform(len(embeddings))
  result = []
  for h, label in zip(np.asarray(hidden, np.float64), labels, strict=True):
    candidates = [label] + [i for i in ids if i != label]
    logits = [
      h @ embeddings[i] - np.log(1.0 - np.exp(-p[i] * threshold))
      for i in candidates
    ]
    result.append(log_probs([logits])[0, 0])
  return np.array(result)
