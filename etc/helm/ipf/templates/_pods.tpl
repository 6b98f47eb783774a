{{- define "ipf.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "ipf.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- /* The volume of a listener's TLS files: a dict of folder and tls; nothing without TLS. */ -}}
{{- define "ipf.tlsVolume" -}}
{{- $tls := default dict .tls -}}
{{- if $tls.secretName }}
- name: tls-{{ .folder }}
  projected:
    defaultMode: 0440
    sources:
      - secret: {name: {{ toJson $tls.secretName }}, items: [{key: tls.crt, path: tls.crt}, {key: tls.key, path: tls.key}]}
      {{- with $tls.clientCaSecretName }}
      - secret: {name: {{ toJson . }}, items: [{key: ca.crt, path: ca.crt}]}
      {{- end }}
{{- end }}
{{- end }}

{{- define "ipf.tlsMount" -}}
{{- if (default dict .tls).secretName }}
- {name: tls-{{ .folder }}, mountPath: /etc/ipf/tls/{{ .folder }}, readOnly: true}
{{- end }}
{{- end }}

{{- define "ipf.trustVolume" -}}
{{- with .Values.trustedAuthorities.configMapName }}
- {name: trust, configMap: {name: {{ toJson . }}}}
{{- end }}
{{- end }}

{{- define "ipf.trustMount" -}}
{{- if .Values.trustedAuthorities.configMapName }}
- {name: trust, mountPath: /etc/ipf/trust, readOnly: true}
{{- end }}
{{- end }}

{{- /* The labels of the engine's pods: a dict of root and the name of a role group, which may be empty. */ -}}
{{- define "ipf.enginePods" -}}
{{ include "ipf.selector" .root }}
app.kubernetes.io/component: engine
{{- with .name }}
ipf/group: {{ . }}
{{- end }}
{{- end }}

{{- /* The labels of the engine's pods that have a role: a dict of root and role.  Without role groups: all. */ -}}
{{- define "ipf.rolePods" -}}
{{ include "ipf.enginePods" (dict "root" .root "name" "") }}
{{- if .root.Values.roleGroups }}
ipf/{{ .role }}: "true"
{{- end }}
{{- end }}

{{- /* Where pods run: a dict of values and pods (their labels). */ -}}
{{- define "ipf.placement" -}}
{{- with .values.nodeSelector }}
nodeSelector: {{ toJson . }}
{{- end }}
{{- with .values.tolerations }}
tolerations: {{ toJson . }}
{{- end }}
{{- with .values.affinity }}
affinity: {{ toJson . }}
{{- end }}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- .pods | nindent 8 }}
{{- end }}
