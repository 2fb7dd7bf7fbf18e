"""Where examples come from when no file is needed, one task a file."""
