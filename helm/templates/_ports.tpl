{{/* The TCP ports that the sinks need, for the NetworkPolicy; a JSON list. */}}

{{/* The port of an address: its own, or its scheme's. */}}
{{- define "seb.urlPort" -}}
{{- $url := urlParse . -}}
{{- $own := regexFind ":[0-9]+$" $url.host | trimPrefix ":" -}}
{{- $own | default (eq $url.scheme "http" | ternary "80" "443") -}}
{{- end -}}

{{- define "seb.mqttPort" -}}
{{- .port | default (hasKey . "tls" | ternary 8883 1883) | int -}}
{{- end -}}

{{- define "seb.sinkPorts" -}}
{{- $ports := list -}}
{{- range $name, $sink := .Values.settings.sink -}}
{{- $kind := $sink.kind | default $name -}}
{{- if eq $kind "mqtt" -}}
{{- $ports = append $ports (include "seb.mqttPort" $sink) -}}
{{- else if eq $kind "webhook" -}}
{{- $ports = append $ports (include "seb.urlPort" ($sink.url | default "https://in-a-secret")) -}}
{{- else if eq $kind "eventhub" -}}
{{- /* AMQP over TLS; a managed identity's token comes over HTTPS, or from IMDS. */ -}}
{{- $ports = append $ports "5671" -}}
{{- if $sink.namespace -}}{{- $ports = append $ports "443" -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- if .Values.kubernetes.enabled -}}
{{- /* The API server's Service, and where managed and other clusters have the server behind it. */ -}}
{{- $ports = concat $ports (list "443" "6443") -}}
{{- end -}}
{{- $commands := .Values.settings.commands | default dict -}}
{{- if or $commands.pull_url (hasKey .Values.secrets.variables "SEB_COMMANDS__PULL_URL") -}}
{{- $ports = append $ports (include "seb.urlPort" ($commands.pull_url | default "https://in-a-secret")) -}}
{{- end -}}
{{- range .Values.networkPolicy.sinkPorts -}}
{{- $ports = append $ports (int . | toString) -}}
{{- end -}}
{{- $ports | uniq | sortAlpha | toJson -}}
{{- end -}}
