"""Nth Farthest: Santoro et al. 2018, section 4.1, figures 3 to 5."""
