{{/*
The match condition, as a YAML list. API servers evaluate it and send only pods to which a rule
may apply. `make docs` generates it from the rules; this template adds names from the user's own
profiles, and pods that only concern a rule where the webhook has an inventory. The list is empty
if the policy applies to every container or every pod, or if the profiles add so many names that the condition
could become too expensive: with failurePolicy Ignore, API servers do not send a pod for which the
condition fails.
*/}}
{{- define "gpuward.matchConditions" -}}
{{- $policy := include "gpuward.policy" . | fromJson -}}
{{- $isAboutEveryPod := false -}}
{{- with $policy.rules -}}
{{- if kindIs "map" . -}}
{{- with get . "gpu-node-without-request" -}}
{{- if kindIs "map" . -}}
{{- $isAboutEveryPod = not (has (get . "action" | toString) (list "" "off" "false")) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and .Values.registration.matchConditions (not $policy.voidEveryContainer) (not $isAboutEveryPod) -}}
{{- $own := dict "annotations" list "variables" list "labels" list "taints" list "runtimeClasses" list -}}
{{- range include "gpuward.objects" $policy.profiles | fromJsonArray -}}
{{- range concat (include "gpuward.objects" .fractions | fromJsonArray) (include "gpuward.objects" .schedulers | fromJsonArray) -}}
{{- $_ := set $own "annotations" (concat $own.annotations (include "gpuward.names" .annotations | fromJsonArray)) -}}
{{- end -}}
{{- $_ := set $own "variables" (concat $own.variables (include "gpuward.names" .alternativeVariables | fromJsonArray) (include "gpuward.names" .visibleDevices | fromJsonArray)) -}}
{{- $_ := set $own "labels" (concat $own.labels (include "gpuward.names" .nodeLabels | fromJsonArray) (include "gpuward.names" .nodeModes | fromJsonArray)) -}}
{{- range include "gpuward.objects" .taints | fromJsonArray -}}
{{- $_ := set $own "taints" (append $own.taints (.key | toString)) -}}
{{- end -}}
{{- $_ := set $own "runtimeClasses" (concat $own.runtimeClasses (include "gpuward.names" .runtimeClasses | fromJsonArray)) -}}
{{- end -}}
{{- if le (len (concat $own.annotations $own.variables $own.labels $own.taints $own.runtimeClasses)) 50 -}}
{{- $condition := .Files.Get "files/match-conditions.cel" -}}
{{- $inventory := .Values.clusterInventory -}}
{{- range list
  (list "annotations" "key" $own.annotations)
  (list "variables" "variable.name" $own.variables)
  (list "nodeSelector" "key" $own.labels)
  (list "nodeAffinity" "expression.key" $own.labels)
  (list "tolerations" "toleration.key" (concat $own.labels $own.taints))
  (list "runtimeClasses" "name" $own.runtimeClasses) -}}
{{- $tests := include "gpuward.isOneOf" (rest .) -}}
{{- if and $inventory.enabled (eq (first .) "runtimeClasses") -}}
{{- $tests = " || name != \"\"" -}}
{{- end -}}
{{- $condition = replace (printf "%%%s%%" (first .)) $tests $condition -}}
{{- end -}}
{{- $sources := ternary " || has(source.configMapRef)" "" (and $inventory.enabled $inventory.configMaps) -}}
{{- $condition = replace "%sources%" $sources $condition -}}
{{- $condition = replace "%knowsNodes%" (and $inventory.enabled $inventory.nodeNames | toString) $condition -}}
- name: may-concern-a-rule
  expression: |-
    {{- $condition | trim | nindent 4 }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
Further tests in CEL: whether a text matches one of these patterns. A pattern is compared only up
to its first `*`.
*/}}
{{- define "gpuward.isOneOf" -}}
{{- $text := first . -}}
{{- range last . | uniq | sortAlpha -}}
{{- if contains "*" . }} || {{ $text }}.startsWith({{ splitList "*" . | first | toJson }})
{{- else }} || {{ $text }} == {{ toJson . }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
The objects in a list, and the texts in a list or the keys of an object, as JSON. In `policyText`,
of which Helm knows no schema, other types may stand there: the hook reports them.
*/}}
{{- define "gpuward.objects" -}}
{{- $found := list -}}
{{- if kindIs "slice" . -}}
{{- range . }}{{ if kindIs "map" . }}{{ $found = append $found . }}{{ end }}{{ end -}}
{{- end -}}
{{ toJson $found }}
{{- end -}}

{{- define "gpuward.names" -}}
{{- $found := list -}}
{{- if kindIs "map" . }}{{ $found = keys . | sortAlpha }}{{ end -}}
{{- if kindIs "slice" . -}}
{{- range . }}{{ if kindIs "string" . }}{{ $found = append $found . }}{{ end }}{{ end -}}
{{- end -}}
{{ toJson $found }}
{{- end -}}
