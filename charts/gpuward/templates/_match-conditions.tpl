{{/*
The condition by which API servers tell by themselves which pods concern no rule, as a YAML list.
It is made from the rules by `make docs`; what profiles of the user's own know is added here.
There is none where the policy wants every container judged, nor where so much is added that the
condition could become too expensive: a pod about which it fails would not be sent to us.
*/}}
{{- define "gpuward.matchConditions" -}}
{{- $policy := .Values.policy | default dict -}}
{{- if and .Values.registration.matchConditions (not $policy.voidEveryContainer) -}}
{{- $own := dict "annotations" list "variables" list "labels" list "runtimeClasses" list -}}
{{- range concat (.Values.profiles | default list) ($policy.profiles | default list) -}}
{{- if kindIs "map" . -}}
{{- range concat (.fractions | default list) (.schedulers | default list) -}}
{{- $_ := set $own "annotations" (concat $own.annotations (.annotations | default list)) -}}
{{- end -}}
{{- $_ := set $own "variables" (concat $own.variables (.alternativeVariables | default list)) -}}
{{- $_ := set $own "labels" (concat $own.labels (keys (.nodeLabels | default dict))) -}}
{{- $_ := set $own "runtimeClasses" (concat $own.runtimeClasses (.runtimeClasses | default list)) -}}
{{- end -}}
{{- end -}}
{{- if le (len (concat $own.annotations $own.variables $own.labels $own.runtimeClasses)) 50 -}}
{{- $condition := .Files.Get "files/match-conditions.cel" -}}
{{- range list
  (list "annotations" "key" $own.annotations)
  (list "variables" "variable.name" $own.variables)
  (list "nodeSelector" "key" $own.labels)
  (list "nodeAffinity" "expression.key" $own.labels)
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

{{/* Further tests in CEL: whether a text fits one of these patterns, as far as to their first `*`. */}}
{{- define "gpuward.isOneOf" -}}
{{- $text := first . -}}
{{- range last . | uniq | sortAlpha -}}
{{- if contains "*" . }} || {{ $text }}.startsWith({{ splitList "*" . | first | toJson }})
{{- else }} || {{ $text }} == {{ toJson . }}
{{- end -}}
{{- end -}}
{{- end -}}
