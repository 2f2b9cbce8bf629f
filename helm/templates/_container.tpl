{{/* The parts of the pod that need more than a line. */}}

{{/* What every container may do: nothing. */}}
{{- define "seb.confined" -}}
allowPrivilegeEscalation: false
privileged: false
readOnlyRootFilesystem: true
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{/* Listening on one address of its own keeps a bridge in the node's network off the others. */}}
{{- define "seb.listen" -}}
{{- $address := .Values.http.address | default (.Values.hostNetwork | ternary "$(POD_IP)" "0.0.0.0") -}}
{{- contains ":" $address | ternary (printf "[%s]" $address) $address }}:{{ .Values.http.port }}
{{- end -}}

{{- define "seb.env" -}}
- name: SEB_CONFIG
  value: /etc/seb/config/seb.toml
- name: SEB_STATE_DIR
  value: /var/lib/scheduled-events-bridge
{{- if and .Values.hostNetwork (not .Values.http.address) }}
- name: POD_IP
  valueFrom:
    fieldRef:
      fieldPath: status.podIP
{{- end }}
- name: SEB_HTTP__LISTEN
  value: {{ include "seb.listen" . | quote }}
- name: SEB_NODE__NODE
  valueFrom:
    fieldRef:
      fieldPath: spec.nodeName
- name: SEB_NODE__POD
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
{{- with .Values.clusterName }}
- name: SEB_NODE__CLUSTER
  value: {{ . | quote }}
{{- end }}
{{- if or .Values.approval.trust.jwks .Values.approval.trust.configMap }}
- name: SEB_APPROVAL__TRUST
  value: /etc/seb/trust/{{ .Values.approval.trust.key }}
{{- end }}
{{- if .Values.secrets.directory }}
- name: SEB_SECRETS_DIR
  value: /etc/seb/secrets
{{- end }}
{{- range $name, $from := .Values.secrets.variables }}
- name: {{ $name }}
  valueFrom:
    secretKeyRef:
      name: {{ $from.secret }}
      key: {{ $from.key }}
{{- end }}
{{- range $name, $value := .Values.extraEnv }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end -}}

{{- define "seb.volumeMounts" -}}
- name: state
  mountPath: /var/lib/scheduled-events-bridge
- name: tmp
  mountPath: /tmp
- name: config
  mountPath: /etc/seb/config
  readOnly: true
{{- /* Whole directories, no subPath: that is how changes reach a running pod. */}}
{{- if or .Values.approval.trust.jwks .Values.approval.trust.configMap }}
- name: trust
  mountPath: /etc/seb/trust
  readOnly: true
{{- end }}
{{- if .Values.secrets.directory }}
- name: secrets
  mountPath: /etc/seb/secrets
  readOnly: true
{{- end }}
{{- if .Values.kubernetes.enabled }}
- name: api-token
  mountPath: /var/run/secrets/kubernetes.io/serviceaccount
  readOnly: true
{{- end }}
{{- range $name, $_ := .Values.files }}
- name: files-{{ $name }}
  mountPath: /etc/seb/files/{{ $name }}
  readOnly: true
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "seb.volumes" -}}
- name: state
{{- if eq .Values.state.type "hostPath" }}
  hostPath:
    path: {{ .Values.state.hostPath.path }}
    type: {{ .Values.state.hostPath.prepare | ternary "DirectoryOrCreate" "Directory" }}
{{- else }}
  emptyDir:
    sizeLimit: {{ .Values.state.emptyDir.sizeLimit }}
{{- end }}
- name: tmp
  emptyDir:
    sizeLimit: 16Mi
- name: config
  configMap:
    name: {{ include "seb.fullname" . }}-settings
{{- with .Values.approval.trust }}
{{- if or .jwks .configMap }}
- name: trust
  configMap:
    name: {{ .configMap | default (printf "%s-trust" (include "seb.fullname" $)) }}
{{- end }}
{{- end }}
{{- with .Values.secrets.directory }}
- name: secrets
  secret:
    secretName: {{ . }}
    defaultMode: 0440
{{- end }}
{{- if .Values.kubernetes.enabled }}
# What automountServiceAccountToken would mount into every container, for the bridge alone.
- name: api-token
  projected:
    defaultMode: 0440
    sources:
      - serviceAccountToken:
          path: token
          expirationSeconds: 3607
      - configMap:
          name: kube-root-ca.crt
          items:
            - key: ca.crt
              path: ca.crt
      - downwardAPI:
          items:
            - path: namespace
              fieldRef:
                fieldPath: metadata.namespace
{{- end }}
{{- range $name, $from := .Values.files }}
- name: files-{{ $name }}
{{- if $from.secret }}
  secret:
    secretName: {{ $from.secret }}
    defaultMode: 0440
{{- else }}
  configMap:
    name: {{ $from.configMap }}
{{- end }}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/*
Kubernetes makes a hostPath directory for root, and fsGroup does not reach it. Root with CAP_CHOWN alone
gives the empty directory away, once; a directory that somebody else filled is left as it is.
*/}}
{{- define "seb.prepareState" -}}
- name: prepare-state
  image: {{ include "seb.image" . }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  command:
    - python3
    - -I
    - -c
    - |
      import os, sys
      path, user = sys.argv[1], int(sys.argv[2])
      owner = os.stat(path).st_uid
      if owner != user:
          if owner != 0 or os.listdir(path):
              sys.exit(f"state.hostPath.path: the directory on this node is in use by uid {owner}; "
                       "name another one, or empty it and give it to root")
          os.chmod(path, 0o700)
          os.chown(path, user, user)
    - /var/lib/scheduled-events-bridge
    - "65532"
  terminationMessagePolicy: FallbackToLogsOnError
  securityContext:
    {{- include "seb.confined" . | nindent 4 }}
    runAsNonRoot: false
    runAsUser: 0
    runAsGroup: 0
    capabilities:
      drop: [ALL]
      add: [CHOWN]
  resources:
    requests:
      cpu: 10m
      memory: 32Mi
    limits:
      memory: 64Mi
  volumeMounts:
    - name: state
      mountPath: /var/lib/scheduled-events-bridge
{{- end -}}
