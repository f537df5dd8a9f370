"""`gpuward init`: write a policy and values of the chart that fit a cluster."""

POLICY, VALUES = "gpuward.yaml", "gpuward-values.yaml"
PRIORITY_QUOTA = "gpuward-priority-quota.yaml"
"""The names of the files that it writes."""
