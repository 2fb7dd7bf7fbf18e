"""Rows of text as a table with columns one below the other."""

from collections.abc import Sequence


def text_table(rows: Sequence[Sequence[str]]) -> str:
  """Lines of cells, each as wide as the widest of its column; rows may end."""
  num_columns = max(map(len, rows))
  filled = [[*row, *[''] * (num_columns - len(row))] for row in rows]
  widths = [max(map(len, column)) for column in zip(*filled, strict=True)]
  return '\n'.join(
    '  '.join(
      cell.ljust(width) for cell, width in zip(row, widths, strict=True)
    ).rstrip()
    for row in filled
  )
