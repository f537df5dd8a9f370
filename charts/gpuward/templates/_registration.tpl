{{/* The webhooks of both webhook configurations: what API servers send to gpuward. */}}

{{/*
Each possible mode of a namespace with the namespaceSelector for it, as a YAML list. A label with a
mode below minimumMode results in minimumMode; a missing or misspelt label results in the default
mode.
*/}}
{{- define "gpuward.modes" -}}
{{- $rank := dict "off" 0 "audit" 1 "warn" 2 "deny" 3 -}}
{{- $default := include "gpuward.mode" .Values.mode -}}
{{- $minimum := include "gpuward.mode" .Values.minimumMode -}}
{{- $leading := dict -}}
{{- $elsewhere := list -}}
{{- range $label := keys $rank | sortAlpha -}}
{{- $mode := ternary $minimum $label (lt (get $rank $label) (get $rank $minimum)) -}}
{{- $_ := set $leading $mode (append (get $leading $mode | default list) $label) -}}
{{- if ne $mode $default }}{{ $elsewhere = append $elsewhere $label }}{{ end -}}
{{- end -}}
{{- $system := list "kube-system" "kube-public" "kube-node-lease" .Release.Namespace -}}
{{- $names := concat $system (.Values.registration.excludedNamespaces | default list) | uniq | sortAlpha -}}
{{- $away := dict "key" "kubernetes.io/metadata.name" "operator" "NotIn" "values" $names -}}
{{- $selected := list -}}
{{- range $mode := list "deny" "warn" "audit" -}}
{{- $terms := list -}}
{{- if eq $mode $default -}}
{{- $terms = list $away -}}
{{- with $elsewhere }}{{ $terms = append $terms (dict "key" "gpuward.io/mode" "operator" "NotIn" "values" .) }}{{ end -}}
{{- else if hasKey $leading $mode -}}
{{- $terms = list $away (dict "key" "gpuward.io/mode" "operator" "In" "values" (get $leading $mode)) -}}
{{- end -}}
{{- with $terms }}{{ $selected = append $selected (dict "mode" $mode "selector" (dict "matchExpressions" .)) }}{{ end -}}
{{- end -}}
{{ toYaml $selected }}
{{- end -}}

{{/*
The webhooks of one configuration, as a YAML list: (dict "root" $ "kind" "Mutating" "caBundle" "…").
*/}}
{{- define "gpuward.webhooks" -}}
{{- $values := .root.Values -}}
{{- $conditions := include "gpuward.matchConditions" .root | fromYamlArray -}}
{{- $rules := .root.Files.Get "files/rules.yaml" | fromYaml -}}
{{- range $modeEntry := include "gpuward.modes" .root | fromYamlArray }}
{{- $entry := dict "root" $.root "selector" $modeEntry.selector "caBundle" $.caBundle }}
{{- $podEntry := dict "conditions" $conditions "failurePolicy" $values.registration.failurePolicy }}
{{- if eq $.kind "Mutating" }}
{{- $path := printf "/mutate/%s" $modeEntry.mode }}
{{ include "gpuward.entry" (merge (dict "name" (printf "pods.%s" $modeEntry.mode) "path" $path "rules" $rules.mutatePods "reinvocationPolicy" "IfNeeded") $podEntry $entry) }}
{{ include "gpuward.entry" (merge (dict "name" (printf "workloads.%s" $modeEntry.mode) "path" $path "rules" $rules.mutateWorkloads "reinvocationPolicy" "IfNeeded" "failurePolicy" "Ignore") $entry) }}
{{- else }}
{{ include "gpuward.entry" (merge (dict "name" $modeEntry.mode "path" (printf "/validate/%s" $modeEntry.mode) "rules" $rules.validatePods) $podEntry $entry) }}
{{- end }}
{{- end }}
{{- end -}}

{{/* One webhook, with every field for which the API server would otherwise set a default. */}}
{{- define "gpuward.entry" -}}
- name: {{ .name }}.gpuward.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "gpuward.fullname" .root }}
      namespace: {{ .root.Release.Namespace }}
      port: 443
      path: {{ .path }}
    {{- with .caBundle }}
    caBundle: {{ . }}
    {{- end }}
  failurePolicy: {{ .failurePolicy }}
  matchPolicy: Equivalent
  namespaceSelector:
    {{- toYaml .selector | nindent 4 }}
  objectSelector: {}
  {{- with .conditions }}
  matchConditions:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .reinvocationPolicy }}
  reinvocationPolicy: {{ . }}
  {{- end }}
  rules:
    {{- toYaml .rules | nindent 4 }}
  sideEffects: None
  timeoutSeconds: {{ .root.Values.registration.timeoutSeconds }}
{{- end -}}

{{/*
The metadata of a configuration: (dict "root" $ "caBundle" "…" "created" false).

`caBundle` is what Helm writes there. With `created` it has the annotations that Helm adds, without
which Helm 4 would not delete it.
*/}}
{{- define "gpuward.registrationMetadata" -}}
{{- $annotations := dict -}}
{{- if .caBundle }}{{ $_ := set $annotations "gpuward.io/ca-bundle" "written-by-helm" }}{{ end -}}
{{- if .root.Values.registration.repair }}{{ $_ := set $annotations "gpuward.io/repair-binding" "gpuward-repair" }}{{ end -}}
{{- if .created -}}
{{- $_ := set $annotations "meta.helm.sh/release-name" .root.Release.Name -}}
{{- $_ := set $annotations "meta.helm.sh/release-namespace" .root.Release.Namespace -}}
{{- end -}}
name: gpuward
labels:
  {{- include "gpuward.labels" (dict "root" .root "component" "webhook") | nindent 2 }}
{{- with merge $annotations (include "gpuward.injection" .root | fromYaml) .root.Values.registration.annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* "true" if a pod of its own watches the webhook configurations, else empty. */}}
{{- define "gpuward.ownWatch" -}}
{{- if and .Values.registration.watch.enabled (ne .Values.certificates.mode "self") }}true{{ end -}}
{{- end -}}

{{/* The variables of a container that creates events about its own pod. */}}
{{- define "gpuward.podVariables" -}}
{{- range $variable, $field := dict "POD_NAMESPACE" "namespace" "POD_NAME" "name" "POD_UID" "uid" }}
- name: {{ $variable }}
  valueFrom:
    fieldRef: {apiVersion: v1, fieldPath: metadata.{{ $field }}}
{{- end }}
{{- end -}}

{{/* The rule of a role that lets a pod create events. */}}
{{- define "gpuward.eventRule" -}}
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create]
{{- end -}}

{{/*
The objects without which a component does not work, each as KIND/NAME in a line: those in the
release's namespace, also those that a controller creates, and those of the cluster.
tests/chart/test_expectation.py compares them with what the chart renders.
*/}}
{{- define "gpuward.neededObjects" -}}
{{- $name := include "gpuward.fullname" . -}}
Deployment/{{ $name }}
ServiceAccount/{{ $name }}
Service/{{ $name }}
Service/{{ $name }}-replicas
ConfigMap/{{ $name }}-policy
ConfigMap/{{ $name }}-policy-fallback
Secret/{{ include "gpuward.servingSecret" . }}
{{- with .Values.certificates }}
{{- if eq .mode "self" }}
Deployment/{{ $name }}-certs
ServiceAccount/{{ $name }}-certs
Role/{{ $name }}-certs
RoleBinding/{{ $name }}-certs
ClusterRole/gpuward-certs
ClusterRoleBinding/gpuward-certs
Secret/{{ $name }}-ca
Lease/{{ $name }}-certs
{{- else if and (eq .mode "certManager") (not .certManager.issuerRef) }}
Secret/{{ $name }}-cert-manager-ca
{{- end }}
{{- end }}
{{- if include "gpuward.ownWatch" . }}
Deployment/{{ $name }}-watch
{{- end }}
{{- if .Values.gpuExceptions.enabled }}
Deployment/{{ $name }}-exceptions
ConfigMap/{{ $name }}-exceptions
{{- end }}
{{- if .Values.clusterInventory.enabled }}
Deployment/{{ $name }}-inventory
{{- range until (int .Values.clusterInventory.parts) }}
ConfigMap/{{ $name }}-inventory-{{ . }}
{{- end }}
{{- end }}
{{- if .Values.audit.enabled }}
{{ .Values.audit.kind }}/{{ $name }}-audit
{{- end }}
{{- if .Values.console.enabled }}
Deployment/{{ $name }}-console
Service/{{ $name }}-console
{{- end }}
{{- end -}}
