"""TFDS builders of text corpora; `load.py` is the door to them."""
