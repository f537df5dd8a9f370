{{/*
Who writes caBundle: one for each mode. Helm does with `existingSecret`, our controller with `self`,
cert-manager's injector with `certManager`; what two write would be fought over.
*/}}

{{/* The annotation by which cert-manager's injector knows what to write, as YAML. */}}
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
Helm takes away what is no longer in its manifest. So where it has once written caBundle, and another
writer comes after it, it goes on to write what that one has put there: nothing is changed by it.
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
