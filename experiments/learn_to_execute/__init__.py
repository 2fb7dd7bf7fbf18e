"""Program evaluation: Santoro et al. 2018, section 5.2, table 1, figure 8."""
