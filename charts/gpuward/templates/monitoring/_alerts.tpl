{{/*
What stands for the words with a dollar in files/alerts.yaml, as YAML.

The certificate controller renews when a third of a life is left. When only two thirds of that
are left, it is late: 20 days of 90.
*/}}
{{- define "gpuward.alertWords" -}}
{{- $fails := eq .Values.registration.failurePolicy "Fail" -}}
{{- $mode := .Values.certificates.mode -}}
{{- $own := .Values.certificates.self -}}
{{- $half := divf .Values.registration.timeoutSeconds 2 -}}
$NAMESPACE: {{ .Release.Namespace }}
$DOWN: {{ ternary "critical" "warning" (or $fails (eq (include "gpuward.mode" .Values.mode) "deny")) }}
$WITHOUT: {{ ternary "Then pods cannot be created." "Then pods pass unjudged." $fails }}
$SLOW_OUTSIDE: {{ $half | quote }}
$SLOW_INSIDE: {{ minf $half 1 | quote }}
$CERTIFICATE_LATE: {{ div (mul $own.servingDays 86400 2) 9 | quote }}
$AUTHORITY_LATE: {{ div (mul $own.authorityDays 86400 2) 9 | quote }}
{{- if eq $mode "self" }}
$EXPIRES_SOON: {{ div (mul $own.servingDays 86400 14) 90 | quote }}
$RENEWER: The log of the certificate controller says why.
{{- else }}
$EXPIRES_SOON: {{ mul 14 86400 | quote }}
{{- if eq $mode "certManager" }}
$RENEWER: "`kubectl describe certificate {{ include "gpuward.fullname" . }}` says why."
{{- else }}
$RENEWER: Replace the Secret {{ include "gpuward.servingSecret" . }}; pods take it without a restart.
{{- end }}
{{- end }}
{{- end -}}
