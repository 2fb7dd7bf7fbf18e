"""The contestants' programs, one for each framework, in its own environment."""
