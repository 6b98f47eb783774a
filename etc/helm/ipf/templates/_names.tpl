{{- define "ipf.name" -}}
{{ default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- define "ipf.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{ .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else if contains (include "ipf.name" .) .Release.Name -}}
{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-%s" .Release.Name (include "ipf.name" .) | trunc 50 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "ipf.selector" -}}
app.kubernetes.io/name: {{ include "ipf.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "ipf.consolePods" -}}
{{ include "ipf.selector" . }}
app.kubernetes.io/component: console
{{- end }}

{{- /* The name of a Deployment of the engine: a dict of root and the name of a role group, which may be empty. */ -}}
{{- define "ipf.engineName" -}}
{{ include "ipf.fullname" .root }}{{ with .name }}-{{ . }}{{ end }}
{{- end }}

{{- /* "true" when a role group has the role: a dict of root and role.  Nothing without role groups. */ -}}
{{- define "ipf.runs" -}}
{{- $role := .role -}}
{{- $found := false -}}
{{- range .root.Values.roleGroups }}
{{- $found = or $found (has $role .roles) }}
{{- end }}
{{- if $found }}true{{ end }}
{{- end }}

{{- define "ipf.labels" -}}
{{ include "ipf.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "ipf.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{ default (include "ipf.fullname" .) .Values.serviceAccount.name }}
{{- else -}}
{{ default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "ipf.image" -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end }}

{{- /* A Service as pods of other namespaces reach it: a dict of root, suffix, and listener (its port and tls). */ -}}
{{- define "ipf.url" -}}
{{ ternary "https" "http" (ne .listener.tls.secretName "") }}://{{ include "ipf.fullname" .root }}{{ .suffix }}.{{ .root.Release.Namespace }}.svc:{{ .listener.port }}
{{- end }}

{{- define "ipf.adminUrl" -}}
{{ include "ipf.url" (dict "root" . "suffix" "" "listener" .Values.http) }}
{{- end }}

{{- define "ipf.fhirUrl" -}}
{{- $listener := ternary .Values.fhir .Values.http (ne (int .Values.fhir.port) 0) -}}
{{- $suffix := ternary "-fhir" "" (has "fhir" (include "ipf.fhirServices" . | fromJsonArray)) -}}
{{ include "ipf.url" (dict "root" . "suffix" $suffix "listener" $listener) }}
{{- end }}

{{- /* The roles of FHIR clients that have a Service of their own, as JSON. */ -}}
{{- define "ipf.fhirServices" -}}
{{- $found := list -}}
{{- range $role := list "fhir" "mapping" }}
{{- if include "ipf.runs" (dict "root" $ "role" $role) }}
{{- $found = append $found $role }}
{{- end }}
{{- end }}
{{- if and .Values.fhir.port (not .Values.roleGroups) }}
{{- $found = list "fhir" }}
{{- end }}
{{- toJson $found }}
{{- end }}

{{- /* The names by which HTTP clients in the cluster reach the engine. */ -}}
{{- define "ipf.hosts" -}}
{{- $names := list (include "ipf.fullname" .) -}}
{{- range include "ipf.fhirServices" . | fromJsonArray }}
{{- $names = append $names (printf "%s-%s" (include "ipf.fullname" $) .) }}
{{- end }}
{{- range $index, $one := $names }}{{ if $index }} {{ end }}{{ $one }}.{{ $.Release.Namespace }}.svc {{ $one }}{{ end }}
{{- end }}
