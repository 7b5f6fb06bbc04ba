{{- define "toolgate.labels" -}}
app.kubernetes.io/name: toolgate
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* Not those of gateways, to which the Service leads. */}}
{{- define "toolgate.workerLabels" -}}
app.kubernetes.io/name: toolgate-worker
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "toolgate.metadata" -}}
labels:
  {{- include "toolgate.labels" . | nindent 2 }}
  app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
  app.kubernetes.io/managed-by: {{ .Release.Service }}
  helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "toolgate.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* One container, as hardened as the image allows: `args` are those of `toolgate`. */}}
{{- define "toolgate.container" -}}
image: {{ include "toolgate.image" .root | quote }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
args: {{ .args | toJson }}
env:
  - {name: TOOLGATE_CONFIG, value: /etc/toolgate/toolgate.yaml}
  - {name: TOOLGATE_SERVER__HOST, value: "0.0.0.0"}
  - {name: TOOLGATE_SERVER__PORT, value: "8765"}
  {{- if and .root.Values.worker.replicas (eq (first .args) "serve") }}
  - {name: TOOLGATE_EMBEDDING__WORKERS, value: "0"}
  - {name: TOOLGATE_JOBS__CONCURRENCY, value: "0"}
  {{- end }}
envFrom:
  - secretRef: {name: {{ .root.Values.existingSecret }}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
volumeMounts:
  - {name: settings, mountPath: /etc/toolgate, readOnly: true}
  - {name: data, mountPath: /data}
  - {name: tmp, mountPath: /tmp}
  {{- if .root.Values.secretFiles }}
  - {name: secrets, mountPath: /run/secrets/toolgate, readOnly: true}
  {{- end }}
  {{- with .root.Values.volumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{- define "toolgate.pod" -}}
automountServiceAccountToken: false
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  seccompProfile: {type: RuntimeDefault}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets: {{ . | toJson }}
{{- end }}
volumes:
  - name: settings
    configMap: {name: {{ .settings }}}
  - name: data
    {{- toYaml .root.Values.dataVolume | nindent 4 }}
  - {name: tmp, emptyDir: {}}
  {{- with .root.Values.secretFiles }}
  - name: secrets
    secret: {secretName: {{ . }}}
  {{- end }}
  {{- with .root.Values.volumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .root.Values.nodeSelector }}
nodeSelector: {{ . | toJson }}
{{- end }}
{{- with .root.Values.tolerations }}
tolerations: {{ . | toJson }}
{{- end }}
{{- with .root.Values.affinity }}
affinity: {{ . | toJson }}
{{- end }}
{{- end }}
