"""How fast it is: one question a script, beside a baseline in the same run."""
