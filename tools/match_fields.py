"""CEL expressions of the fields of a pod that the match condition reads."""

from __future__ import annotations

from rules.placement.node_affinity import PREFERRED, REQUIRED

# Fields may be missing and these lists may be null; neither may make the condition fail.
CONTAINERS = """optional.ofNonZeroValue(object.spec.?containers.orValue([])).orValue([])
  + object.spec.?initContainers.orValue([])
  + object.spec.?ephemeralContainers.orValue([])"""
TERMS = f"""optional.ofNonZeroValue(object.spec.?affinity.?nodeAffinity
  .?{REQUIRED}
  .?nodeSelectorTerms.orValue([])).orValue([])"""
PREFERENCES = f"""optional.ofNonZeroValue(object.spec.?affinity.?nodeAffinity
  .?{PREFERRED}.orValue([])).orValue([]).map(choice, choice.preference)"""
TOLERATIONS = "object.spec.?tolerations.orValue([])"
HOST_PROCESS = "?securityContext.?windowsOptions.?hostProcess.orValue(false)"
SPREADS = "object.spec.?topologySpreadConstraints.orValue([])"
NEAR = f"object.spec.?affinity.?podAffinity.?{REQUIRED}.orValue([])"
ENV, ENV_FROM = "container.?env.orValue([])", "container.?envFrom.orValue([])"
EXPRESSIONS = "term.?matchExpressions.orValue([])"
