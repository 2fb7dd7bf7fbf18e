"""Text as integers: tokens, vocabulary, files of ids, and windows."""
