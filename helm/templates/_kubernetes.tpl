{{/* The sink of kind `kubernetes`: which one it is, and what it needs of the cluster. */}}

{{/* The bridge's settings, with an empty sink of that kind if the chart turns it on and none is named. */}}
{{- define "seb.settingsWithKubernetes" -}}
{{- $settings := deepCopy .Values.settings -}}
{{- if and .Values.kubernetes.enabled (not (include "seb.kubernetesNames" . | fromJsonArray)) -}}
{{- $settings = merge $settings (dict "sink" (dict "kubernetes" dict)) -}}
{{- end -}}
{{- toJson $settings -}}
{{- end -}}

{{/* The names of the sinks of that kind; a JSON list. */}}
{{- define "seb.kubernetesNames" -}}
{{- $names := list -}}
{{- range $name, $sink := .Values.settings.sink -}}
{{- if eq ($sink.kind | default $name) "kubernetes" -}}
{{- $names = append $names $name -}}
{{- end -}}
{{- end -}}
{{- toJson $names -}}
{{- end -}}

{{/* The fields of the sink of that kind; a JSON object, empty where there is none. */}}
{{- define "seb.kubernetesSink" -}}
{{- $sink := dict -}}
{{- range include "seb.kubernetesNames" . | fromJsonArray -}}
{{- $sink = get $.Values.settings.sink . -}}
{{- end -}}
{{- toJson $sink -}}
{{- end -}}

{{/* Objects of the whole cluster, and of another namespace, carry the release's namespace in their names. */}}
{{- define "seb.clusterName" -}}
{{- printf "%s-%s" .Release.Namespace (include "seb.fullname" .) -}}
{{- end -}}

{{- define "seb.serviceAccountSubject" -}}
- kind: ServiceAccount
  name: {{ include "seb.serviceAccountName" . }}
  namespace: {{ .Release.Namespace }}
{{- end -}}

{{/*
What the sink's token may change. `dyn` is there because the policy is about several kinds, and because
"everything but these keys" should hold for fields that Kubernetes gets in the future, too.
*/}}
{{- define "seb.kubernetesValidations" -}}
{{- $sink := include "seb.kubernetesSink" . | fromJson -}}
{{- $mayCordon := or $sink.cordon $sink.drain -}}
variables:
  - name: ownNode
    expression: request.userInfo.extra[?"authentication.kubernetes.io/node-name"][0].orValue("")
  - name: part
    expression: request.?subResource.orValue("")
  - name: isNode
    expression: request.resource.resource == "nodes"
  - name: newNode
    expression: dyn(object)
  - name: oldNode
    expression: dyn(oldObject)
  - name: newAnnotations
    expression: variables.newNode.metadata.?annotations.orValue({})
  - name: oldAnnotations
    expression: variables.oldNode.metadata.?annotations.orValue({})
  - name: newTaints
    expression: variables.newNode.?spec.taints.orValue([])
  - name: oldTaints
    expression: variables.oldNode.?spec.taints.orValue([])
  - name: isClosed
    expression: variables.newNode.?spec.unschedulable.orValue(false)
  - name: wasClosed
    expression: variables.oldNode.?spec.unschedulable.orValue(false)
  # Whether the bridge's own annotation says that the bridge cordoned the node.
  - name: isOurs
    expression: variables.newAnnotations[?"scheduled-events-bridge/marks"].orValue("").contains('"cordoned":true')
  - name: wasOurs
    expression: variables.oldAnnotations[?"scheduled-events-bridge/marks"].orValue("").contains('"cordoned":true')
  - name: newStatus
    expression: variables.newNode.?status.orValue({})
  - name: oldStatus
    expression: variables.oldNode.?status.orValue({})
validations:
  - expression: variables.ownNode != ""
    message: the token is not that of a pod on a node (Kubernetes 1.30 writes the node into it)
    reason: Forbidden
  - expression: '!variables.isNode || object.metadata.name == variables.ownNode'
    messageExpression: '"the token of a pod on " + variables.ownNode + " changes no other node"'
    reason: Forbidden
  - expression: >-
      !variables.isNode || (
        variables.newNode.metadata.all(k,
          k in ["annotations", "generation", "managedFields", "resourceVersion"]
          || (k in variables.oldNode.metadata && variables.newNode.metadata[k] == variables.oldNode.metadata[k]))
        && variables.oldNode.metadata.all(k,
          k in ["annotations", "generation", "managedFields", "resourceVersion"] || k in variables.newNode.metadata)
        && variables.newAnnotations.all(k, k == "scheduled-events-bridge/marks"
          || (k in variables.oldAnnotations && variables.newAnnotations[k] == variables.oldAnnotations[k]))
        && variables.oldAnnotations.all(k, k == "scheduled-events-bridge/marks" || k in variables.newAnnotations))
    message: of a node's metadata, only the annotation scheduled-events-bridge/marks may change
    reason: Forbidden
  - expression: >-
      !variables.isNode || (
        variables.newNode.?spec.orValue({}).all(k, k in ["taints", "unschedulable"]
          || (k in variables.oldNode.spec && variables.newNode.spec[k] == variables.oldNode.spec[k]))
        && variables.oldNode.?spec.orValue({}).all(k, k in ["taints", "unschedulable"] || k in variables.newNode.spec))
    message: of a node's spec, only the own taint and the own cordon may change
    reason: Forbidden
  - expression: >-
      !variables.isNode || (
        variables.newTaints.filter(t, t.key != "scheduled-events-bridge/event")
          == variables.oldTaints.filter(t, t.key != "scheduled-events-bridge/event")
        && variables.newTaints.filter(t, t.key == "scheduled-events-bridge/event").all(t,
          {{ if $sink.taint }}t.effect == "NoSchedule"{{ else }}t in variables.oldTaints{{ end }}))
    message: {{ if $sink.taint }}of a node's taints, only scheduled-events-bridge/event:NoSchedule may change{{ else }}the settings of the chart ask for no taint{{ end }}
    reason: Forbidden
  # A cordon and the annotation that says whose it is change together: no cordon of others is taken back.
  - expression: >-
      !variables.isNode || (
        (variables.isClosed == variables.wasClosed
          || {{ if $mayCordon }}(variables.isClosed && variables.isOurs)
          || {{ end }}(!variables.isClosed && variables.wasOurs))
        && (!variables.isOurs || variables.wasOurs || (variables.isClosed && !variables.wasClosed)))
    message: {{ if $mayCordon }}only the own cordon of a node may be taken back{{ else }}the settings of the chart ask for no cordon{{ end }}
    reason: Forbidden
  - expression: >-
      !variables.isNode || (
        variables.newStatus.all(k, k == "conditions"
          || (k in variables.oldStatus && variables.newStatus[k] == variables.oldStatus[k]))
        && variables.oldStatus.all(k, k == "conditions" || k in variables.newStatus)
        && variables.newStatus.?conditions.orValue([]).filter(c, c.type != "ScheduledEvent")
          == variables.oldStatus.?conditions.orValue([]).filter(c, c.type != "ScheduledEvent"))
    message: of a node's status, only the condition ScheduledEvent may change
    reason: Forbidden
  - expression: >-
      request.resource.resource != "events" || (
        dyn(object).involvedObject.?kind.orValue("") == "Node"
        && dyn(object).involvedObject.?name.orValue("") == variables.ownNode
        && dyn(object).?reportingComponent.orValue("") == "scheduled-events-bridge"
        && dyn(object).?source.component.orValue("") == "scheduled-events-bridge")
    message: only events about the own node may be written, and in the own name
    reason: Forbidden
  # An eviction does not say on which node its pod is, so a policy cannot look.
  - expression: >-
      request.resource.resource != "pods" || variables.part != "eviction" || (
        dyn(object).?deleteOptions.preconditions.uid.orValue("") != ""
        && !dyn(object).?deleteOptions.gracePeriodSeconds.hasValue())
    message: an eviction names the uid of its pod and leaves the pod its own grace period
    reason: Forbidden
  - expression: >-
      request.resource.resource != "pods" || variables.part != ""
      || dyn(oldObject).?spec.nodeName.orValue("") == variables.ownNode
    messageExpression: '"the token of a pod on " + variables.ownNode + " deletes no pod of another node"'
    reason: Forbidden
  - expression: >-
      request.resource.resource != "pods" || variables.part != "" || (
        !("kubernetes.io/config.mirror" in dyn(oldObject).metadata.?annotations.orValue({}))
        && !dyn(oldObject).metadata.?ownerReferences.orValue([]).exists(o,
          o.kind == "DaemonSet" && o.?controller.orValue(false)))
    message: daemon and mirror pods stay on the node
    reason: Forbidden
{{- end -}}
