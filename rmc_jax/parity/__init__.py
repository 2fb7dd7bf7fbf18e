"""Comparison with the authors' Sonnet module, and conversion of weights."""
