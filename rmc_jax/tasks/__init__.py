"""Where examples come from when no file is needed; a file or folder each."""
