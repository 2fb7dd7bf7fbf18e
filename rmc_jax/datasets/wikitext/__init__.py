"""WikiText-2 and WikiText-103."""
