{{/*
The policy file. Helm reads an unquoted `off` as false, and knows all numbers as fractions, which
only JSON writes without an exponent; JSON is YAML too.
*/}}
{{- define "gpuward.policy" -}}
{{- $policy := merge (deepCopy .Values.policy) (dict "apiVersion" "gpuward.io/v1" "kind" "Policy" "profiles" .Values.profiles) -}}
{{- range $policy.rules -}}
{{- if and (hasKey . "action") (kindIs "bool" .action) -}}
{{- $_ := set . "action" "off" -}}
{{- end -}}
{{- end -}}
{{ mustToPrettyJson $policy }}
{{- end -}}

{{/* A mode as its word: Helm reads an unquoted `off` as false. */}}
{{- define "gpuward.mode" -}}
{{- if . }}{{ . }}{{ else }}off{{ end -}}
{{- end -}}
