{{- /* Where a secret is kept: what arrives is a dict of root, variable, path (of its values), value, existingSecret.
       What leaves: {secret: name, key: key}; nothing when it is not given. */ -}}
{{- define "ipf.secretSource" -}}
{{- $existing := default dict .existingSecret -}}
{{- if and $existing.name .value }}
{{- fail (printf "%s: give a value or an existingSecret, not both" .path) }}
{{- end }}
{{- if and $existing.key (not $existing.name) }}
{{- fail (printf "%s: existingSecret.key needs existingSecret.name" .path) }}
{{- end }}
{{- if $existing.name -}}
{secret: {{ toJson $existing.name }}, key: {{ default .variable $existing.key | toJson }}}
{{- else if .value -}}
{secret: {{ include "ipf.fullname" .root | toJson }}, key: {{ toJson .variable }}}
{{- end }}
{{- end }}

{{- /* The secrets of the engine: variable -> {secret, key}. */ -}}
{{- define "ipf.engineSecrets" -}}
{{- $root := . -}}
{{- $admin := .Values.interfaceEngine.admin -}}
{{- with include "ipf.secretSource" (dict "root" $root "variable" "IPF_ADMIN_AUTH_TOKEN" "path" "interfaceEngine.admin" "value" $admin.authToken "existingSecret" $admin.existingSecret) }}
IPF_ADMIN_AUTH_TOKEN: {{ . }}
{{- end }}
{{- range $name, $one := .Values.secrets }}
{{- with include "ipf.secretSource" (dict "root" $root "variable" $name "path" (printf "secrets.%s" $name) "value" $one.value "existingSecret" $one.existingSecret) }}
{{ $name }}: {{ . }}
{{- end }}
{{- end }}
{{- end }}

{{- /* The secret of the console's sign-in: {secret, key}. */ -}}
{{- define "ipf.oidcSecret" -}}
{{- $oidc := .Values.console.oidc -}}
{{ include "ipf.secretSource" (dict "root" . "variable" "OIDC_CLIENT_SECRET" "path" "console.oidc" "value" $oidc.clientSecret "existingSecret" $oidc.existingSecret) }}
{{- end }}

{{- /* The values of secrets that are kept in the Secret of this release: variable -> value. */ -}}
{{- define "ipf.secretValues" -}}
{{- with .Values.interfaceEngine.admin.authToken }}
IPF_ADMIN_AUTH_TOKEN: {{ toJson . }}
{{- end }}
{{- with .Values.console.oidc.clientSecret }}
OIDC_CLIENT_SECRET: {{ toJson . }}
{{- end }}
{{- range $name, $one := .Values.secrets }}
{{- with $one.value }}
{{ $name }}: {{ toJson . }}
{{- end }}
{{- end }}
{{- end }}

{{- /* A projected volume of secrets, as files named by their variables: what arrives is variable -> {secret, key}. */ -}}
{{- define "ipf.secretVolume" -}}
name: secrets
projected:
  defaultMode: 0440
  sources:
    {{- range $name, $from := . }}
    - secret:
        name: {{ toJson $from.secret }}
        items: [{key: {{ toJson $from.key }}, path: {{ $name }}}]
    {{- end }}
{{- end }}
