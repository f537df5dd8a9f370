{{/*
The Deployment of a controller, and the Service by which its metrics are scraped:
(dict "root" $ "component" "watch" "args" (list …) "folders" (dict "policy" "gpuward-policy") …).

`folders` are the folders below /etc/gpuward, each with the ConfigMap that is mounted there;
`resources` are those of the container; `environment` is optional.
*/}}
{{- define "gpuward.controller" -}}
{{- $name := printf "%s-%s" (include "gpuward.fullname" .root) .component -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ $name }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "gpuward.labels" . | nindent 4 }}
spec:
  replicas: 1
  revisionHistoryLimit: 3
  strategy:
    type: RollingUpdate
    rollingUpdate:
      maxSurge: 1
      maxUnavailable: 0
  selector:
    matchLabels:
      {{- include "gpuward.selectorLabels" . | nindent 6 }}
  template:
    metadata:
      labels:
        {{- include "gpuward.podLabels" . | nindent 8 }}
      {{- with .root.Values.podAnnotations }}
      annotations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    spec:
      serviceAccountName: {{ $name }}
      automountServiceAccountToken: true
      terminationGracePeriodSeconds: 30
      {{- include "gpuward.neededPodSettings" .root | nindent 6 }}
      containers:
        - name: {{ .component }}
          {{- include "gpuward.containerSettings" .root | nindent 10 }}
          args:
            {{- range .args }}
            - {{ . }}
            {{- end }}
            - --status-port={{ .root.Values.ports.certs }}
          {{- with .environment }}
          env:
            {{- . | trim | nindent 12 }}
          {{- end }}
          ports:
            - name: metrics
              containerPort: {{ .root.Values.ports.certs }}
              protocol: TCP
          livenessProbe:
            httpGet: {path: /healthz, port: metrics, scheme: HTTP}
            periodSeconds: 30
            timeoutSeconds: 5
            failureThreshold: 3
          resources:
            {{- toYaml .resources | nindent 12 }}
          volumeMounts:
            {{- range $folder, $_ := .folders }}
            - name: {{ $folder }}
              mountPath: /etc/gpuward/{{ $folder }}
              readOnly: true
            {{- end }}
      volumes:
        {{- range $folder, $configMap := .folders }}
        - name: {{ $folder }}
          configMap:
            name: {{ $configMap }}
            # A pod that does not start could not report that it is missing.
            optional: true
        {{- end }}
---
apiVersion: v1
kind: Service
metadata:
  name: {{ $name }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "gpuward.labels" . | nindent 4 }}
    gpuward.io/scrape: "true"
spec:
  type: ClusterIP
  clusterIP: None
  selector:
    {{- include "gpuward.selectorLabels" . | nindent 4 }}
  ports:
    - name: metrics
      port: {{ .root.Values.ports.certs }}
      targetPort: metrics
      protocol: TCP
{{- end -}}
