"""Rules about files that start containers or build images without Kubernetes.

Only the linter has them: no such file reaches an API server. Each is one file, with the name of the
rule. `order.py` lists them, and `index.py`, which is generated, has them without their modules.
"""
