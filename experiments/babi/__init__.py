"""End-to-end memory networks on the 20 bAbI tasks."""
