{{/* The name of the Deployment and what belongs to it: RELEASE-scheduler. */}}
{{- define "zonewise.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- printf "%s-scheduler" (.Release.Name | trunc 53 | trimSuffix "-") -}}
{{- else -}}
{{- printf "%s-zonewise-scheduler" (.Release.Name | trunc 44 | trimSuffix "-") -}}
{{- end -}}
{{- end -}}

{{- define "zonewise.selectorLabels" -}}
app.kubernetes.io/name: zonewise-scheduler
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "zonewise.labels" -}}
{{ include "zonewise.selectorLabels" . }}
app.kubernetes.io/part-of: zonewise
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "zonewise.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (include "zonewise.fullname" .) -}}
{{- end -}}

{{- define "zonewise.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{/*
The lease that the replicas compete for. In the place of kube-scheduler it is that one's own, so that at any
moment one of the two schedules.
*/}}
{{- define "zonewise.leaseName" -}}
{{- if eq .Values.mode "replace" -}}kube-scheduler{{- else -}}{{ include "zonewise.fullname" . }}{{- end -}}
{{- end -}}
{{- define "zonewise.leaseNamespace" -}}
{{- if eq .Values.mode "replace" -}}kube-system{{- else -}}{{ .Release.Namespace }}{{- end -}}
{{- end -}}

{{/* kube-scheduler may still be running on the same host, as the standby. */}}
{{- define "zonewise.port" -}}
{{- if eq .Values.mode "replace" -}}10269{{- else -}}10259{{- end -}}
{{- end -}}

{{- define "zonewise.probe" -}}
httpGet:
  path: {{ .path }}
  port: https
  scheme: HTTPS
  {{- if eq .root.Values.mode "replace" }}
  host: 127.0.0.1
  {{- end }}
{{- end -}}

{{/* The controller: RELEASE-controller, beside RELEASE-scheduler. */}}
{{- define "zonewise.controllerName" -}}
{{- printf "%s-controller" (include "zonewise.fullname" . | trimSuffix "-scheduler") -}}
{{- end -}}

{{/* Its parts that are on, with spaces between them: their flags, and the last part of the names of their roles. */}}
{{- define "zonewise.controllerParts" -}}
{{- $parts := list -}}
{{- if .Values.controller.survival.enabled -}}{{- $parts = append $parts "survival" -}}{{- end -}}
{{- if .Values.controller.buy.enabled -}}{{- $parts = append $parts "buy" -}}{{- end -}}
{{- if .Values.controller.rebalance.enabled -}}{{- $parts = append $parts "rebalance" -}}{{- end -}}
{{- if .Values.controller.gangBudgets.enabled -}}{{- $parts = append $parts "gang-budgets" -}}{{- end -}}
{{- if .Values.controller.deletionCosts.enabled -}}{{- $parts = append $parts "deletion-costs" -}}{{- end -}}
{{- join " " $parts -}}
{{- end -}}

{{- define "zonewise.controllerSelectorLabels" -}}
app.kubernetes.io/name: zonewise-controller
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "zonewise.controllerLabels" -}}
{{- include "zonewise.labels" . | replace "name: zonewise-scheduler" "name: zonewise-controller" -}}
{{- end -}}
