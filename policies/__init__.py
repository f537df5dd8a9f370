"""Read and validate the files of policies and profiles."""

POLICY_FILE = "gpuward.yaml"
"""The name of a policy file, also as a key of the chart's ConfigMap."""
