"""The language model of end-to-end memory networks."""
