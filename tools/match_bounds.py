"""How much of each thing the match condition looks at."""

from __future__ import annotations

# What a pod may have of each, and how long texts may be, before it is sent to us unseen: a
# condition that becomes too expensive is an error, by which a padded pod would get past us.
MOST = {"containers": 64, "variables": 500, "sources": 100, "volumes": 200}
MOST |= {"annotations": 150, "labels": 150, "nodeSelector": 50}
MOST |= {"terms": 50, "expressions": 50, "values": 500}
MOST |= {"topologySpreadConstraints": 20, "podAffinity": 20}
LONGEST = {"variable": 100, "key": 100, "value": 63, "image": 256}
# And how many names profiles of a user's own may add; with more the chart writes no condition.
MOST_OWN_NAMES = 50
