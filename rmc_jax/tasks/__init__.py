"""Tasks that generate their examples, and language as token ids."""
