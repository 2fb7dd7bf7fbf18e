"""Fake programs for the tests of scripts."""


def write_program(path, *lines):
  """Writes an executable shell script."""
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_text('\n'.join(['#!/bin/bash', *lines, '']))
  path.chmod(0o755)
