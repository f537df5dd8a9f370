"""What policies in CEL read at most.

An API server stops an expression that takes more than 1,000,000 units of cost. A pod with more of
anything is refused or announced as too large.
"""

MAX_COUNTS = {
    "containers": 250,
    "variables": 1_500,
    "GPU variables": 100,
    "entries of envFrom": 300,
    "characters in values of GPU variables": 20_000,
    "volumes": 200,
    "mounts": 300,
    "resources": 500,
    "annotations": 300,
    "mounts at paths of lists of devices": 20,
    "characters in paths of such mounts": 4_000,
    "mounts of paths of the node": 50,
    "characters in these paths": 50_000,
    "node labels": 100,
    "terms of node affinity": 50,
    "expressions of them": 200,
    "tolerations": 200,
}
MAX_CHARACTERS = {"name of a variable": 256, "prefix": 256, "value of a GPU variable": 4096}
