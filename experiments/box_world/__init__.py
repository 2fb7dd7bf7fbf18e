"""An agent that looks for the gem of BoxWorld."""
