"""How a run is started anywhere; needs the standard library only."""
