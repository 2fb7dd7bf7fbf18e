"""Books of Project Gutenberg: PG-19, or a folder of texts."""
