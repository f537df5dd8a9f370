"""The webhook configurations of a cluster: call what they name, or take them away."""
