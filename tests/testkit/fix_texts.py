"""A manifest with a fault that a safe fix removes, in an odd layout, and the fixed text."""

from __future__ import annotations

REQUEST = """\
# trains a model
apiVersion: v1
kind: Pod
metadata: {name: trainer}   # in the namespace of the user
spec:
  tolerations: [{key: nvidia.com/gpu, operator: Exists}]
  nodeSelector: {"nvidia.com/gpu.present": 'true'}
  containers:
  -   name: main

      image: example.com/trainer:1
      resources:
          requests: {cpu: '2', nvidia.com/gpu: "1"} # one
          # limits are wanted
"""
FIXED = REQUEST.replace(
    '"1"} # one\n', '"1"} # one\n          limits:\n              nvidia.com/gpu: "1"\n'
)
