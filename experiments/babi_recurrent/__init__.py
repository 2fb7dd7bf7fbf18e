"""Recurrent cores on the 20 bAbI tasks, next to memory networks."""
