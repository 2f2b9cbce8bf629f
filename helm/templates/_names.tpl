{{/* Names and labels. */}}

{{- define "seb.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* 52 characters leave room for our suffixes, and for those that Kubernetes adds to a pod's name. */}}
{{- define "seb.fullname" -}}
{{- $name := include "seb.name" . -}}
{{- $full := contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name) -}}
{{- .Values.fullnameOverride | default $full | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{- define "seb.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (.Values.serviceAccount.create | ternary (include "seb.fullname" .) "default") -}}
{{- end -}}

{{- define "seb.image" -}}
{{- with .Values.image -}}
{{- .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end -}}
{{- end -}}
{{- end -}}

{{/* What never changes in the life of a release: a DaemonSet's selector cannot. */}}
{{- define "seb.selectorLabels" -}}
app.kubernetes.io/name: {{ include "seb.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "seb.labels" -}}
{{ include "seb.ownLabels" . }}
{{- with .Values.labels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "seb.podLabels" -}}
{{ include "seb.ownLabels" . }}
{{- with merge dict .Values.podLabels .Values.labels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "seb.ownLabels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "seb.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}
