"""Tests rmc_jax/analysis/table.py."""

from rmc_jax.analysis.table import text_table


def test_columns_are_aligned_and_short_rows_filled():
  assert text_table([['a', 'bcd', 'e'], ['fgh', 'i'], ['', 'j', 'klm']]) == (
    'a    bcd  e\nfgh  i\n     j    klm'
  )
