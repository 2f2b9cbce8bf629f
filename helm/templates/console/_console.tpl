{{/* The parts of the console's pod. Its names never begin with seb: a Service called seb-console would
put SEB_CONSOLE_ variables into the pods of its namespace. */}}

{{- define "console.fullname" -}}
{{- printf "console-%s" (include "seb.fullname" .) | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "console.selectorLabels" -}}
app.kubernetes.io/name: {{ printf "console-%s" (include "seb.name" .) | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "console.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "console.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.labels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "console.image" -}}
{{- with .Values.console.image -}}
{{- .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end -}}
{{- end -}}
{{- end -}}

{{/* The console's TOML file: everything of it is in the table [console]. */}}
{{- define "console.settings" -}}
{{- include "seb.toml" (dict "table" (dict "console" .Values.console.settings) "path" "") | trim -}}
{{- end -}}

{{- define "console.checks" -}}
{{- with .Values.console -}}
{{- $login := .settings.login | default dict -}}
{{- if ne ($login.mode | default "none") "proxy" -}}
{{- fail "console.settings.login.mode: others reach a console in a pod, so it needs a login; set it to proxy (docs/console.md)" -}}
{{- end -}}
{{- if not .settings.source -}}
{{- fail "console.settings.source: the console has no source, so it would show nothing; see docs/console.md" -}}
{{- end -}}
{{- if and (gt (int .replicas) 1) (not .database.secret) -}}
{{- fail "console.replicas: several consoles need PostgreSQL; name the Secret with its URL in console.database.secret" -}}
{{- end -}}
{{- range $name, $source := .settings.source -}}
{{- if and (gt (int $.Values.console.replicas) 1) (get ($source | default dict) "client_id") -}}
{{- fail (printf "console.settings.source.%s.client_id: several consoles cannot share one; leave it out, and each gets its own" $name) -}}
{{- end -}}
{{- end -}}
{{- if and .ingress.enabled (not .ingress.host) -}}
{{- fail "console.ingress.host: an Ingress needs the name that people open" -}}
{{- end -}}
{{- end -}}
{{- end -}}
