{{/* Names, labels and the image, shared by all templates. */}}

{{- define "gpuward.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/*
Short enough for every suffix, such as -certs or -replicas. Dots are replaced: the name of a
release may contain them, that of a Service may not.
*/}}
{{- define "gpuward.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 45 | trimSuffix "-" -}}
{{- else if contains (include "gpuward.name" .) .Release.Name -}}
{{- .Release.Name | replace "." "-" | trunc 45 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "gpuward.name" .) | replace "." "-" | trunc 45 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* The labels that select the pods of one component: (dict "root" $ "component" "webhook"). */}}
{{- define "gpuward.selectorLabels" -}}
app.kubernetes.io/name: {{ include "gpuward.name" .root | quote }}
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* The labels that the user's labels cannot override. */}}
{{- define "gpuward.ownLabels" -}}
{{ include "gpuward.selectorLabels" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: gpuward
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* The labels of an object of one component. */}}
{{- define "gpuward.labels" -}}
{{ merge (include "gpuward.ownLabels" . | fromYaml) (.root.Values.commonLabels | default dict) | toYaml }}
{{- end -}}

{{/* The labels of pods of one component. */}}
{{- define "gpuward.podLabels" -}}
{{ merge (include "gpuward.ownLabels" . | fromYaml) (.root.Values.podLabels | default dict) (.root.Values.commonLabels | default dict) | toYaml }}
{{- end -}}

{{- define "gpuward.image" -}}
{{- with .Values.image -}}
{{- $name := .repository -}}
{{- with .registry }}{{ $name = printf "%s/%s" . $name }}{{ end -}}
{{- if .digest -}}
{{ $name }}@{{ .digest }}
{{- else -}}
{{ $name }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The Secret that the webhook's pods mount. */}}
{{- define "gpuward.servingSecret" -}}
{{- $own := include "gpuward.fullname" . -}}
{{- with .Values.certificates -}}
{{- if eq .mode "existingSecret" -}}
{{ .existingSecret.name }}
{{- else if eq .mode "certManager" -}}
{{ $own }}-cert-manager-tls
{{- else -}}
{{ $own }}-tls
{{- end -}}
{{- end -}}
{{- end -}}

{{/* "true" if there are always at least two pods of the webhook, else empty. */}}
{{- define "gpuward.severalReplicas" -}}
{{- $least := ternary .Values.autoscaling.minReplicas .Values.replicaCount .Values.autoscaling.enabled -}}
{{- if gt (int $least) 1 }}true{{ end -}}
{{- end -}}

{{/*
The replicas of the webhook's Deployment; empty if the manifest must not name them.

With an autoscaler, an installation begins with its minimum, and an upgrade repeats the number that is
there: Helm removes a field that its last manifest had and the new one lacks, and API servers then set
1. Whoever has scaled the Deployment owns the number, and with server-side apply any other one is a
conflict, also a larger minimum. Where the chart is only rendered, `lookup` finds not even an empty
list: tools that apply the result again and again would fight the autoscaler over a number.
*/}}
{{- define "gpuward.replicas" -}}
{{- if not .Values.autoscaling.enabled -}}
{{ .Values.replicaCount }}
{{- else -}}
{{- with lookup "apps/v1" "Deployment" .Release.Namespace "" -}}
{{- $replicas := $.Values.autoscaling.minReplicas -}}
{{- range .items -}}
{{- if eq .metadata.name (include "gpuward.fullname" $) -}}
{{- $isScaled := false -}}
{{- range .metadata.managedFields -}}
{{- $isScaled = or $isScaled (eq (.subresource | default "") "scale") -}}
{{- end -}}
{{- $replicas = ternary .spec.replicas (max .spec.replicas $replicas) $isScaled -}}
{{- end -}}
{{- end -}}
{{ $replicas }}
{{- end -}}
{{- end -}}
{{- end -}}
