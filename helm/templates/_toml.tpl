{{/*
A map as TOML. Helm's own toToml writes every number as a float and fails on nothing; a setting in a
ConfigMap should read as its owner wrote it. JSON's strings, numbers, booleans and lists are TOML too.
*/}}

{{- define "seb.toml.key" -}}
{{- regexMatch "^[A-Za-z0-9_-]+$" . | ternary . (toRawJson .) -}}
{{- end -}}

{{- define "seb.toml.isTables" -}}
{{- if and (kindIs "slice" .) (gt (len .) 0) -}}
{{- if kindIs "map" (first .) -}}true{{- end -}}
{{- end -}}
{{- end -}}

{{/* Takes a dict of `table`, a map, and `path`, where the table is in the document ("" at its top). */}}
{{- define "seb.toml" -}}
{{- $path := .path -}}
{{- range $key, $value := .table -}}
{{- if not (or (kindIs "invalid" $value) (kindIs "map" $value) (include "seb.toml.isTables" $value)) }}
{{ include "seb.toml.key" $key }} = {{ toRawJson $value }}
{{- end -}}
{{- end -}}
{{- range $key, $value := .table -}}
{{- $inner := printf "%s%s" $path (include "seb.toml.key" $key) -}}
{{- if kindIs "map" $value }}

[{{ $inner }}]
{{- include "seb.toml" (dict "table" $value "path" (printf "%s." $inner)) -}}
{{- else if include "seb.toml.isTables" $value -}}
{{- range $value }}

[[{{ $inner }}]]
{{- include "seb.toml" (dict "table" . "path" (printf "%s." $inner)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The bridge's TOML file. */}}
{{- define "seb.settings" -}}
{{- include "seb.toml" (dict "table" (include "seb.settingsWithKubernetes" . | fromJson) "path" "") | trim -}}
{{- end -}}
