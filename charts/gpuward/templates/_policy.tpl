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
  gpuward.yaml: |
    {{- include "gpuward.policy" .root | nindent 4 }}
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
{{- end -}}

{{/* A mode as a string: Helm reads an unquoted `off` as false. */}}
{{- define "gpuward.mode" -}}
{{- if . }}{{ . }}{{ else }}off{{ end -}}
{{- end -}}
