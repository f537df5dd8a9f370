{{/*
The match condition, as a YAML list. API servers evaluate it and send only pods to which a rule
may apply. `make docs` generates it from the rules; this template adds names from the user's own
profiles. The list is empty if the policy applies to every container, or if the profiles add so
many names that the condition could become too expensive: with failurePolicy Ignore, API servers
do not send a pod for which the condition fails.
*/}}
{{- define "gpuward.matchConditions" -}}
{{- $policy := include "gpuward.policy" . | fromJson -}}
{{- if and .Values.registration.matchConditions (not $policy.voidEveryContainer) -}}
{{- $own := dict "annotations" list "variables" list "labels" list "taints" list "runtimeClasses" list -}}
{{- range $policy.profiles -}}
{{- if kindIs "map" . -}}
{{- range concat (.fractions | default list) (.schedulers | default list) -}}
{{- $_ := set $own "annotations" (concat $own.annotations (.annotations | default list)) -}}
{{- end -}}
{{- $_ := set $own "variables" (concat $own.variables (.alternativeVariables | default list) (keys (.visibleDevices | default dict))) -}}
{{- $_ := set $own "labels" (concat $own.labels (keys (.nodeLabels | default dict))) -}}
{{- range .taints | default list -}}
{{- $_ := set $own "taints" (append $own.taints .key) -}}
{{- end -}}
{{- $_ := set $own "runtimeClasses" (concat $own.runtimeClasses (.runtimeClasses | default list)) -}}
{{- end -}}
{{- end -}}
{{- if le (len (concat $own.annotations $own.variables $own.labels $own.taints $own.runtimeClasses)) 50 -}}
{{- $condition := .Files.Get "files/match-conditions.cel" -}}
{{- range list
  (list "annotations" "key" $own.annotations)
  (list "variables" "variable.name" $own.variables)
  (list "nodeSelector" "key" $own.labels)
  (list "nodeAffinity" "expression.key" $own.labels)
  (list "tolerations" "toleration.key" (concat $own.labels $own.taints))
  (list "runtimeClasses" "name" $own.runtimeClasses) -}}
{{- $tests := include "gpuward.isOneOf" (rest .) -}}
{{- $condition = replace (printf "%%%s%%" (first .)) $tests $condition -}}
{{- end -}}
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
