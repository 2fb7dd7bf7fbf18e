"""Tables and figures from the files of a run."""
