"""Text8, the cleaned beginning of a Wikipedia dump."""
