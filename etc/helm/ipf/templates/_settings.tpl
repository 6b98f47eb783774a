{{- /* Written by bin/helm-values: the variables that keys of the contract set. */ -}}
{{- define "ipf.contract" -}}
IPF_MAX_ATTEMPTS: {{ toJson .Values.interfaceEngine.worker.retry.maxAttempts }}
IPF_BACKOFF_BASE_MS: {{ toJson .Values.interfaceEngine.worker.retry.backoffBaseMs }}
IPF_BACKOFF_FACTOR: {{ toJson .Values.interfaceEngine.worker.retry.backoffFactor }}
IPF_BACKOFF_MAX_MS: {{ toJson .Values.interfaceEngine.worker.retry.backoffMaxMs }}
IPF_DLQ_LOG_LEVEL: {{ toJson .Values.interfaceEngine.worker.retry.dlqLogLevel }}
SUBSCRIPTION_SERVICE_AUDIT_ENABLED: {{ toJson .Values.featureToggles.audit.enabled }}
SUBSCRIPTION_SERVICE_AUDIT_CAPTURE_READS: {{ toJson .Values.featureToggles.audit.captureReads }}
SUBSCRIPTION_SERVICE_AUDIT_CAPTURE_SEARCH: {{ toJson .Values.featureToggles.audit.captureSearch }}
SUBSCRIPTION_SERVICE_AUDIT_RETENTION_DAYS: {{ toJson .Values.featureToggles.audit.retentionDays }}
{{- end }}

{{- /* The roles of the default. */ -}}
{{- define "ipf.roles" -}}
["receive", "convert", "deliver", "poll", "admin", "fhir", "mapping"]
{{- end }}
