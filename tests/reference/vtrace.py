"""V-trace as the sum of its definition, for one sequence of Python numbers."""


def targets(
  ratios,
  rewards,
  discounts,
  ended,
  values,
  next_values,
  clip_rho,
  clip_c,
  trace_decay,
):
  """v[s] = V[s] + the sum over t of (product of g c from s to t - 1) delta[t].

  The sum ends with the episode or the sequence.
  """
  result = []
  for s in range(len(rewards)):
    total, weight = values[s], 1.0
    for t in range(s, len(rewards)):
      rho = min(clip_rho, ratios[t])
      total += (
        weight * rho * (rewards[t] + discounts[t] * next_values[t] - values[t])
      )
      if ended[t]:
        break
      weight *= discounts[t] * trace_decay * min(clip_c, ratios[t])
    result.append(total)
  return result


def advantages(
  ratios, rewards, discounts, ended, values, next_values, v, clip_advantage
):
  """A[t], with the targets v."""
  result = []
  for t in range(len(rewards)):
    last = ended[t] or t + 1 == len(rewards)
    after = next_values[t] if last else v[t + 1]
    error = rewards[t] + discounts[t] * after - values[t]
    result.append(min(clip_advantage, ratios[t]) * error)
  return result
