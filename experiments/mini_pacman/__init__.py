"""An agent that plays Mini Pacman."""
