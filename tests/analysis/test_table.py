"""Tests rmc_jax/analysis/table.py."""

from rmc_jax.analysis.table import text_table


def test_columns_stand_one_below_the_other_and_rows_may_be_short():
  assert text_table([['a', 'bcd', 'e'], ['fgh', 'i'], ['', 'j', 'klm']]) == (
    'a    bcd  e\nfgh  i\n     j    klm'
  )
