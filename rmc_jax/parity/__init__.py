"""Comparison with the authors' Sonnet module; weights to it and from it."""
