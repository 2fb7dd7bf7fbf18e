"""Memory networks that choose statements, on the 20 bAbI tasks."""
