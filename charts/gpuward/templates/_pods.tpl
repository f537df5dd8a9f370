{{/* Fields that all pods of the chart share: user, scheduling and restrictions. */}}

{{/* Fields of the spec of a pod. */}}
{{- define "gpuward.podSettings" -}}
{{- with .Values -}}
# Otherwise Kubernetes would set several environment variables for each Service of the namespace.
enableServiceLinks: false
securityContext:
  {{- include "gpuward.podSecurityContext" . | nindent 2 }}
{{- with .imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if not (include "gpuward.systemClass" $) }}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end }}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end -}}

{{/*
The same for the pods without which API servers get no decisions: they alone have a priority class
of the system. Hooks run before there is the quota that some API servers demand for it.
*/}}
{{- define "gpuward.neededPodSettings" -}}
{{ include "gpuward.podSettings" . }}
{{- with include "gpuward.systemClass" . }}
priorityClassName: {{ . }}
{{- end }}
{{- end -}}

{{/* The priority class of these values if it is one of Kubernetes' own, which begin so. */}}
{{- define "gpuward.systemClass" -}}
{{- $class := .Values.priorityClassName | default "" -}}
{{- if hasPrefix "system-" $class }}{{ $class }}{{ end -}}
{{- end -}}

{{/*
The security context of pods, of these values. Users and groups that are `none` are left to the
cluster. Null says the same, but Helm 4 loses it in values.yaml of a parent chart, and the default
stays.
*/}}
{{- define "gpuward.podSecurityContext" -}}
{{- $context := .podSecurityContext -}}
{{- range list "runAsUser" "runAsGroup" "fsGroup" -}}
{{- if eq (get $context . | toString) "none" -}}
{{- $context = omit $context . -}}
{{- end -}}
{{- end -}}
{{- toYaml $context -}}
{{- end -}}

{{/* Fields of every container. */}}
{{- define "gpuward.containerSettings" -}}
image: {{ include "gpuward.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
# So that `kubectl describe pod` shows why a container ended.
terminationMessagePolicy: FallbackToLogsOnError
securityContext:
  {{- toYaml .Values.securityContext | nindent 2 }}
{{- end -}}

{{/*
A ServiceAccount: (dict "root" $ "component" "certs" "suffix" "-certs"). By default its token is not
mounted.
*/}}
{{- define "gpuward.serviceAccount" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ include "gpuward.fullname" .root }}{{ .suffix }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "gpuward.labels" . | nindent 4 }}
  {{- $annotations := merge (dict) (.annotations | default dict) (.root.Values.serviceAccount.annotations | default dict) }}
  {{- with $annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
automountServiceAccountToken: false
{{- end -}}

{{/*
A binding of the role NAME to a ServiceAccount:
(dict "root" $ "component" … "suffix" … "kind" "ClusterRole" "name" …).
*/}}
{{- define "gpuward.binding" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .kind }}Binding
metadata:
  name: {{ .name }}
  {{- if eq .kind "Role" }}
  namespace: {{ .root.Release.Namespace }}
  {{- end }}
  labels:
    {{- include "gpuward.labels" . | nindent 4 }}
  {{- with .annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ .kind }}
  name: {{ .name }}
subjects:
  - kind: ServiceAccount
    name: {{ include "gpuward.fullname" .root }}{{ .suffix }}
    namespace: {{ .root.Release.Namespace }}
{{- end -}}
