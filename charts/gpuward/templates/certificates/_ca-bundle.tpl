{{/*
In each mode exactly one program writes caBundle: Helm with `existingSecret`, gpuward's controller
with `self`, cert-manager's injector with `certManager`. Two writers would overwrite each other.
*/}}

{{/* The annotation that tells cert-manager's injector what to write, as YAML. */}}
{{- define "gpuward.injection" -}}
{{- $name := include "gpuward.fullname" . -}}
{{- with .Values.certificates -}}
{{- if and (eq .mode "certManager") .caBundle -}}
cert-manager.io/inject-ca-from-secret: {{ $.Release.Namespace }}/{{ $name }}-trusted
{{- else if eq .mode "certManager" -}}
cert-manager.io/inject-ca-from: {{ $.Release.Namespace }}/{{ $name }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
What Helm writes into a configuration, in base64: (dict "root" $ "kind" "Mutating").
Helm removes fields that are no longer in its manifest. So if Helm has once written caBundle and
another writer follows, Helm continues to write the value that it finds in the cluster. This changes
nothing.
*/}}
{{- define "gpuward.caBundle" -}}
{{- if eq .root.Values.certificates.mode "existingSecret" -}}
{{ b64enc .root.Values.certificates.caBundle }}
{{- else -}}
{{- $found := lookup "admissionregistration.k8s.io/v1" (printf "%sWebhookConfiguration" .kind) "" "gpuward" -}}
{{- if dig "metadata" "annotations" "gpuward.io/ca-bundle" "" $found -}}
{{- with first ($found.webhooks | default (list dict)) }}{{ dig "clientConfig" "caBundle" "" . }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end -}}
