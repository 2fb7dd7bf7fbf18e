"""Environments that change what another environment does."""
