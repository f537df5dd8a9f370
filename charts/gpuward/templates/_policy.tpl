{{/*
The policy file. Helm reads an unquoted `off` as false, so it is written as a string again. Helm
stores all numbers as floating point; its YAML output writes large ones with an exponent, its JSON
output does not. JSON is valid YAML.
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

{{/* A mode as a string: Helm reads an unquoted `off` as false. */}}
{{- define "gpuward.mode" -}}
{{- if . }}{{ . }}{{ else }}off{{ end -}}
{{- end -}}
