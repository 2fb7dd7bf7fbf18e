"""Formats rows of text as a table with aligned columns."""

from collections.abc import Sequence


def text_table(rows: Sequence[Sequence[str]]) -> str:
  """Returns lines with aligned columns; rows may have fewer cells."""
  num_columns = max(map(len, rows))
  filled = [[*row, *[''] * (num_columns - len(row))] for row in rows]
  widths = [max(map(len, column)) for column in zip(*filled, strict=True)]
  return '\n'.join(
    '  '.join(
      cell.ljust(width) for cell, width in zip(row, widths, strict=True)
    ).rstrip()
    for row in filled
  )
