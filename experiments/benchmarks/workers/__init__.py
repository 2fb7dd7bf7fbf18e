"""The programs that are timed, each in the environment of its framework."""
