"""Sizes above which the match condition sends a pod without testing its content."""

from __future__ import annotations

# The API server stops a condition that becomes too expensive, which is an error: with failurePolicy
# Ignore, a padded pod would bypass gpuward. So the condition sends every pod that has more of
# something than MOST, or a text of more characters than LONGEST.
MOST = {"containers": 64, "variables": 500, "sources": 100, "volumes": 200}
MOST |= {"annotations": 150, "labels": 150, "nodeSelector": 50}
MOST |= {"terms": 50, "expressions": 50, "values": 300}
MOST |= {"topologySpreadConstraints": 20, "podAffinity": 20, "tolerations": 20}
# Of the preferred node affinity, which is read in privileged pods only.
MOST_PREFERRED = {"terms": 5, "expressions": 5, "values": 20}
LONGEST = {"variable": 100, "key": 100, "value": 63, "image": 256}
# How many names the profiles in the chart's values may add to the condition. With more, the chart
# writes no condition.
MOST_OWN_NAMES = 50
