{{- /* An endpoint of Twisted: what arrives is a dict of root, port, folder (of its TLS files) and tls. */ -}}
{{- define "ipf.endpoint" -}}
{{- $address := .root.Values.listenAddress | replace ":" "\\:" -}}
{{- $tls := default dict .tls -}}
{{- if and $tls.clientCaSecretName (not $tls.secretName) }}
{{- fail (printf "%s: tls.clientCaSecretName needs tls.secretName" .folder) }}
{{- end }}
{{- if $tls.clientCaSecretName -}}
mtls:{{ .port }}:privateKey=/etc/ipf/tls/{{ .folder }}/tls.key:certKey=/etc/ipf/tls/{{ .folder }}/tls.crt:clientCa=/etc/ipf/tls/{{ .folder }}/ca.crt:interface={{ $address }}
{{- else if $tls.secretName -}}
ssl:{{ .port }}:privateKey=/etc/ipf/tls/{{ .folder }}/tls.key:certKey=/etc/ipf/tls/{{ .folder }}/tls.crt:interface={{ $address }}
{{- else -}}
tcp:{{ .port }}:interface={{ $address }}
{{- end }}
{{- end }}

{{- /* Named endpoints of a list of listeners: a dict of root and listeners. */ -}}
{{- define "ipf.listeners" -}}
{{- $root := .root -}}
{{- $found := list -}}
{{- range .listeners }}
{{- $found = append $found (printf "%s=%s" .name (include "ipf.endpoint" (dict "root" $root "port" .port "folder" .name "tls" .tls))) }}
{{- end }}
{{- join " " $found }}
{{- end }}

{{- /* The variables of the engine that other values than `settings` make. */ -}}
{{- define "ipf.engineVariables" -}}
{{ include "ipf.contract" . }}
IPF_DATA_DIR: /var/lib/ipf
IPF_HTTP_LISTEN: {{ include "ipf.endpoint" (dict "root" . "port" .Values.http.port "folder" "http" "tls" .Values.http.tls) | toJson }}
IPF_MLLP_LISTEN: {{ include "ipf.listeners" (dict "root" . "listeners" .Values.mllp.listeners) | toJson }}
IPF_HL7_HTTP_LISTEN: {{ include "ipf.listeners" (dict "root" . "listeners" .Values.hl7Http.listeners) | toJson }}
{{- with .Values.fhir.port }}
IPF_FHIR_LISTEN: {{ include "ipf.endpoint" (dict "root" $ "port" . "folder" "fhir" "tls" $.Values.fhir.tls) | toJson }}
{{- end }}
{{- with .Values.metrics.port }}
IPF_METRICS_LISTEN: {{ include "ipf.endpoint" (dict "root" $ "port" . "folder" "metrics") | toJson }}
{{- end }}
{{- if not .Values.settings.IPF_BASE_URL }}
IPF_BASE_URL: {{ include "ipf.fhirUrl" . }}/fhir
{{- end }}
{{- with .Values.settings.IPF_HOSTS }}
IPF_HOSTS: {{ printf "%s %s" . (include "ipf.hosts" $) | toJson }}
{{- end }}
{{- range $name, $from := include "ipf.engineSecrets" . | fromYaml }}
{{ $name }}_FILE: /etc/ipf/secrets/{{ $name }}
{{- end }}
IPFCTL_URL: {{ include "ipf.adminUrl" . }}
{{ include "ipf.trustVariables" . }}
{{- end }}

{{- /* The variables of the console that other values than `consoleSettings` make. */ -}}
{{- define "ipf.consoleVariables" -}}
IPF_UI_LISTEN: {{ include "ipf.endpoint" (dict "root" . "port" .Values.console.port "folder" "console" "tls" .Values.console.tls) | toJson }}
IPF_UI_ENGINE_URL: {{ include "ipf.adminUrl" . }}
{{- with .Values.settings.IPF_LOG_FORMAT }}
IPF_LOG_FORMAT: {{ toJson . }}
{{- end }}
{{- if ne (include "ipf.adminUrl" .) (include "ipf.fhirUrl" .) }}
IPF_UI_FHIR_URL: {{ include "ipf.fhirUrl" . }}
{{- end }}
{{- if (include "ipf.engineSecrets" . | fromYaml).IPF_ADMIN_AUTH_TOKEN }}
IPF_ADMIN_AUTH_TOKEN_FILE: /etc/ipf/secrets/IPF_ADMIN_AUTH_TOKEN
{{- end }}
{{- with .Values.console.oidc.issuer }}
OIDC_ISSUER: {{ toJson . }}
{{- end }}
{{- with .Values.console.oidc.clientId }}
OIDC_CLIENT_ID: {{ toJson . }}
{{- end }}
{{ include "ipf.trustVariables" . }}
{{- end }}

{{- define "ipf.trustVariables" -}}
{{- if .Values.trustedAuthorities.configMapName -}}
SSL_CERT_FILE: /etc/ipf/trust/{{ .Values.trustedAuthorities.key }}
SSL_CERT_DIR: /etc/ssl/certs
{{- end }}
{{- end }}

{{- /* The data of a ConfigMap: each variable as text.  A variable without a value is left out. */ -}}
{{- define "ipf.configData" -}}
{{- range $name, $value := . }}
{{- if kindIs "string" $value }}
{{ $name }}: {{ toJson $value }}
{{- else if not (kindIs "invalid" $value) }}
{{ $name }}: {{ toJson $value | quote }}
{{- end }}
{{- end }}
{{- end }}
