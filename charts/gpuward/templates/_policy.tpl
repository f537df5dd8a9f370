{{/*
The policy as JSON, from `policyText` or from `policy` and `profiles`. Helm reads an unquoted `off`
as false, so it is written as a string again. Helm stores all numbers as floating point; its YAML
output writes large ones with an exponent, its JSON output does not.
*/}}
{{- define "gpuward.policy" -}}
{{- $policy := dict -}}
{{- if .Values.policyText -}}
{{- $policy = fromYaml .Values.policyText -}}
{{- with $policy.Error -}}
{{- fail (printf "policyText is not a policy in YAML: %s" .) -}}
{{- end -}}
{{- if ne (toString ($policy.kind | default "Policy")) "Policy" -}}
{{- fail (printf "policyText: kind should be Policy and is %v: give the policy itself, without the object that contains it" $policy.kind) -}}
{{- end -}}
{{- if not (hasKey $policy "profiles") }}{{ $_ := set $policy "profiles" (list "nvidia") }}{{ end -}}
{{- if not (kindIs "slice" $policy.profiles) -}}
{{- fail "policyText: profiles should be a list" -}}
{{- end -}}
{{- else -}}
{{- $defaults := dict "apiVersion" "gpuward.io/v1" "kind" "Policy" "profiles" .Values.profiles -}}
{{- $policy = merge (deepCopy (.Values.policy | default dict)) $defaults -}}
{{- range $policy.rules -}}
{{- if kindIs "bool" (get . "action") }}{{ $_ := set . "action" "off" }}{{ end -}}
{{- end -}}
{{- end -}}
{{ mustToPrettyJson $policy }}
{{- end -}}

{{/* The policy file: `policyText` as it is, so that messages name its lines. JSON is valid YAML. */}}
{{- define "gpuward.policyFile" -}}
{{ .Values.policyText | default (include "gpuward.policy" .) }}
{{- end -}}

{{/* The ConfigMap with the policy file: (dict "root" $ "component" … "suffix" "-policy"). */}}
{{- define "gpuward.policyConfigMap" -}}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ include "gpuward.fullname" .root }}{{ .suffix }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "gpuward.labels" . | nindent 4 }}
  {{- with .annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
data:
  {{- dict "gpuward.yaml" (include "gpuward.policyFile" .root) | toYaml | nindent 2 }}
{{- end -}}

{{/* The spec of a pod that checks the policy in a ConfigMap: (dict "root" $ "suffix" … "configMap" …). */}}
{{- define "gpuward.policyCheck" -}}
{{- $root := .root -}}
serviceAccountName: {{ include "gpuward.fullname" $root }}{{ .suffix }}
automountServiceAccountToken: false
restartPolicy: Never
{{ include "gpuward.podSettings" $root }}
containers:
  - name: policy-check
    {{- include "gpuward.containerSettings" $root | nindent 4 }}
    args: [policy, check, /etc/gpuward/policy/gpuward.yaml]
    resources:
      {{- toYaml $root.Values.certificates.self.resources | nindent 6 }}
    volumeMounts:
      - name: policy
        mountPath: /etc/gpuward/policy
        readOnly: true
volumes:
  - name: policy
    configMap:
      name: {{ include "gpuward.fullname" $root }}{{ .configMap }}
      # The check says that it is missing; without this, the pod would only wait for it.
      optional: true
{{- end -}}

{{/* A mode as a string: Helm reads an unquoted `off` as false. */}}
{{- define "gpuward.mode" -}}
{{- if . }}{{ . }}{{ else }}off{{ end -}}
{{- end -}}
