{{- define "labels" -}}
app.kubernetes.io/name: etcd-operator
{{- end }}

{{- /* What the controllers that run do in the namespaces that they look after. */}}
{{- define "rules" }}
{{- range $name := concat .Values.controllers (list "everyone") }}
{{ $.Files.Get (printf "files/rules/%s.yaml" $name) | trim }}
{{- end }}
{{- end }}
