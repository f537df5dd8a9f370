{{/*
The values of the placeholders that begin with a dollar in files/alerts.yaml, as YAML.

The certificate controller renews a certificate when a third of its lifetime is left. The alert
fires when only two thirds of that third are left: 20 days of 90.
*/}}
{{- define "gpuward.alertWords" -}}
{{- $fails := eq .Values.registration.failurePolicy "Fail" -}}
{{- $mode := .Values.certificates.mode -}}
{{- $own := .Values.certificates.self -}}
{{- $half := divf .Values.registration.timeoutSeconds 2 -}}
$NAMESPACE: {{ .Release.Namespace }}
$AUDIT_LATE: {{ add 7200 (mul 2 .Values.audit.intervalSeconds) | quote }}
$DOWN: {{ ternary "critical" "warning" (or $fails (eq (include "gpuward.mode" .Values.mode) "deny")) }}
$WITHOUT: {{ ternary "Then pods cannot be created." "Then pods are admitted without evaluation." $fails }}
$SLOW_OUTSIDE: {{ $half | quote }}
$SLOW_INSIDE: {{ minf $half 1 | quote }}
$CERTIFICATE_LATE: {{ div (mul $own.servingDays 86400 2) 9 | quote }}
$AUTHORITY_LATE: {{ div (mul $own.authorityDays 86400 2) 9 | quote }}
{{- if eq $mode "self" }}
$EXPIRES_SOON: {{ div (mul $own.servingDays 86400 14) 90 | quote }}
$RENEWER: The log of the certificate controller shows the reason.
{{- else }}
$EXPIRES_SOON: {{ mul 14 86400 | quote }}
{{- if eq $mode "certManager" }}
$RENEWER: "`kubectl describe certificate {{ include "gpuward.fullname" . }}` shows the reason."
{{- else }}
$RENEWER: Replace the Secret {{ include "gpuward.servingSecret" . }}; the pods load it without a restart.
{{- end }}
{{- end }}
{{- end -}}
