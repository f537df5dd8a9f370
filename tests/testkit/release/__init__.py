"""Build a release as its workflow does, and publish it on servers of the loopback interface."""
