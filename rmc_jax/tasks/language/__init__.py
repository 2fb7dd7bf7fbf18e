"""Text as integers: tokens, their vocabulary, ids in files, and windows."""
