{{/* What the schema cannot say: values that contradict each other. Errors never show a value. */}}

{{- define "seb.checks" -}}
{{- if not (.Values.image | default dict).repository -}}
{{- fail "image.repository: this is empty; name the image that you built and pushed, see docs/aks.md" -}}
{{- end -}}
{{- if and .Values.networkPolicy.enabled .Values.hostNetwork -}}
{{- fail "networkPolicy.enabled: Kubernetes binds no pod that has hostNetwork, so the policy would only look as if it did something; leave one of the two out, and restrict the nodes' network instead" -}}
{{- end -}}
{{- with .Values.approval.trust -}}
{{- if and .jwks .configMap -}}
{{- fail "approval.trust: give jwks or configMap, not both" -}}
{{- end -}}
{{- if regexMatch "\"d\"\\s*:" .jwks -}}
{{- fail "approval.trust.jwks: this holds a private key; give the public keys that `seb keys generate` prints, and make a new pair, for this one has been seen" -}}
{{- end -}}
{{- end -}}
{{- if not (kindIs "map" .Values.settings) -}}
{{- fail "settings: there is nothing in it; write settings: {}" -}}
{{- end -}}
{{- $sinks := .Values.settings.sink | default dict -}}
{{- $kubernetes := include "seb.kubernetesNames" . | fromJsonArray -}}
{{- if gt (len $kubernetes) 1 -}}
{{- fail (printf "settings.sink: %s are all of kind kubernetes; a node has one, for each would take back the marks of the others" (join " and " $kubernetes)) -}}
{{- end -}}
{{- range $kubernetes -}}
{{- $sink := get $sinks . -}}
{{- if $sink.node -}}
{{- fail (printf "settings.sink.%s.node: each pod looks after its own node, whose name the chart gives it; leave it out" .) -}}
{{- end -}}
{{- if not (or $.Values.kubernetes.enabled $sink.kubeconfig) -}}
{{- fail (printf "settings.sink.%s: it has no rights in the cluster; set kubernetes.enabled, which makes its role, its token and the policy that binds them to the own node" .) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.kubernetes.enabled (eq (include "seb.serviceAccountName" .) "default") -}}
{{- fail "kubernetes.enabled: the pods would run as the service account `default`, and every pod of the namespace that does would get the rights; set serviceAccount.create or serviceAccount.name" -}}
{{- end -}}
{{- range $name, $_ := .Values.secrets.variables -}}
{{- if hasPrefix "SEB_SINK__" $name -}}
{{- $sink := regexReplaceAll "^SEB_SINK__(.+?)__.*$" $name "${1}" | lower -}}
{{- if not (hasKey $sinks $sink) -}}
{{- fail (printf "secrets.variables.%s: there is no sink of that name; declare it with settings.sink.%s, which may be {}" $name $sink) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
