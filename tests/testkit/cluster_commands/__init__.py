"""Servers in the place of clusters, for the commands that look at one."""
