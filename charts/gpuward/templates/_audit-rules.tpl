{{/*
The RBAC rules of an audit, which lists what API servers send to the webhook, and what tells more
about pods: (dict "root" $ "verbs" (list "list")). The verbs are those for what is evaluated.
*/}}
{{- define "gpuward.auditRules" -}}
{{- $sent := .root.Files.Get "files/rules.yaml" | fromYaml -}}
- apiGroups: [""]
  resources: [limitranges, namespaces, nodes]
  verbs: [list]
- apiGroups: [admissionregistration.k8s.io]
  resources: [validatingwebhookconfigurations]
  verbs: [list]
- apiGroups: [kueue.x-k8s.io]
  resources: [clusterqueues, cohorts, localqueues, resourceflavors, topologies]
  verbs: [list]
- apiGroups: [node.k8s.io]
  resources: [runtimeclasses]
  verbs: [list]
- apiGroups: [resource.k8s.io]
  resources: [deviceclasses, devicetaintrules]
  verbs: [list]
- apiGroups: [scheduling.run.ai, scheduling.volcano.sh]
  resources: [queues]
  verbs: [list]
- apiGroups: [trainer.kubeflow.org]
  resources: [clustertrainingruntimes]
  verbs: [list]
- apiGroups: [scheduling.alibabacloud.com]
  resources: [resourcepolicies]
  verbs: {{ toJson .verbs }}
{{- range concat $sent.validatePods $sent.mutateWorkloads }}
{{- if not (contains "/" (first .resources)) }}
- apiGroups: {{ toJson .apiGroups }}
  resources: {{ toJson .resources }}
  verbs: {{ toJson $.verbs }}
{{- end }}
{{- end }}
{{- if .root.Values.gpuExceptions.enabled }}
- apiGroups: [gpuward.io]
  resources: [gpuexceptions]
  verbs: [list]
{{- end }}
{{- end -}}
