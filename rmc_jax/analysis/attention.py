"""Draws the attention weights and gates of a memory, step by step."""

from collections.abc import Mapping
from collections.abc import Sequence
import pathlib

from matplotlib.figure import Figure
import numpy as np


def draw_attention(
  path: pathlib.Path,
  attention: np.ndarray,
  *,
  step_labels: Sequence[Sequence[str]],
  marked: Sequence[int],
  captions: Sequence[str],
) -> None:
  """Draws one row of attention matrices for each sequence.

  As in figure 3 of Santoro et al. 2018: the rows of a matrix are the querying
  memory slots, its columns the slots they attend to and, after a gap, the
  inputs. Weights are means over heads, which the paper does not specify; white
  is 0, and the darkest blue the largest weight in the figure.

  Args:
    path: the PNG to write; its folder is created.
    attention: [S, T, H, N, N + I], for S sequences, in one block.
    step_labels: [S][T] title of each matrix.
    marked: [S] the step of each sequence with a red title: the reference.
    captions: [S] label below each row.
  """
  num_sequences, num_steps, _, num_slots, num_columns = attention.shape
  weights = attention.mean(axis=2)  # [S, T, N, N + I]
  figure = Figure(
    figsize=(1.25 * num_steps + 0.8, 1.75 * num_sequences), layout='constrained'
  )
  rows = figure.subfigures(num_sequences, squeeze=False)[:, 0]
  for s, row in enumerate(rows):
    row.supxlabel(captions[s], fontsize=8)
    for t, axes in enumerate(row.subplots(1, num_steps, squeeze=False)[0]):
      image = _insert_gap(weights[s, t], num_slots)
      axes.imshow(image, vmin=0.0, vmax=weights.max(), cmap='Blues')
      reference = t == marked[s]
      axes.set_title(
        step_labels[s][t],
        fontsize=8,
        color='#D00000' if reference else 'black',
        fontweight='bold' if reference else 'normal',
      )
      columns = [str(i + 1) for i in range(num_slots)]
      columns += ['in'] * (num_columns - num_slots)
      places = [*range(num_slots), *range(num_slots + 1, num_columns + 1)]
      axes.set_xticks(places, columns, fontsize=5)
      axes.set_yticks(range(num_slots), columns[:num_slots], fontsize=5)
      axes.tick_params(length=0)
  path.parent.mkdir(parents=True, exist_ok=True)
  figure.savefig(path, dpi=130)


def draw_attention_trace(
  path: pathlib.Path,
  words: Sequence[str],
  attention: np.ndarray,
  gates: Mapping[str, np.ndarray],
) -> None:
  """Draws attention and gates along a text, with a column for each word.

  Top: for each head, the attention weight on the word rather than the memory,
  averaged over the slots. Bottom: each gate, averaged over all units.

  Args:
    path: the PNG to write; its folder is created.
    words: [T].
    attention: [T, H, N, N + 1], of one block.
    gates: name -> [T, N, G]; none for a core without gates.
  """
  figure = Figure(figsize=(0.32 * len(words) + 2.0, 4.0), layout='constrained')
  above, below = figure.subplots(2, 1, sharex=True)
  on_word = attention[..., -1].mean(axis=-1).T  # [H, T]
  image = above.imshow(on_word, vmin=0.0, cmap='Blues', aspect='auto')
  figure.colorbar(image, ax=above, label='weight on the word')
  heads = [f'head {i + 1}' for i in range(len(on_word))]
  above.set_yticks(range(len(heads)), heads)
  for name, values in gates.items():
    means = values.reshape(len(words), -1).mean(axis=-1)
    below.plot(means, marker='o', markersize=3, label=f'{name} gate')
  below.set(ylim=(0.0, 1.0), ylabel='mean gate')
  if gates:
    below.legend(loc='best')
  below.grid(alpha=0.2)
  below.set_xticks(range(len(words)), words, rotation=90, fontsize=7)
  path.parent.mkdir(parents=True, exist_ok=True)
  figure.savefig(path, dpi=130)


def _insert_gap(weights: np.ndarray, num_slots: int) -> np.ndarray:
  """Returns [N, 1 + N + I], with a gap between the slots and the inputs."""
  gap = np.full((len(weights), 1), np.nan)
  return np.concatenate(
    [weights[:, :num_slots], gap, weights[:, num_slots:]], axis=1
  )
