"""Starts runs on one machine or a cluster; needs only the standard library."""
