{{/*
The KubeSchedulerConfiguration: a profile of config/, of which files/config has copies, with the values
worked into it.
*/}}
{{- define "zonewise.config" -}}
{{- $config := .Files.Get (printf "files/config/%s.yaml" .Values.mode) | fromYaml -}}
{{- $election := mergeOverwrite $config.leaderElection .Values.leaderElection -}}
{{- $_ := set $election "resourceNamespace" (include "zonewise.leaseNamespace" .) -}}
{{- $_ := set $election "resourceName" (include "zonewise.leaseName" .) -}}

{{- $profile := first $config.profiles -}}
{{- if eq .Values.mode "replace" -}}
  {{- if .Values.schedulerName -}}
    {{- fail "schedulerName: in mode replace it is default-scheduler and cannot be set" -}}
  {{- end -}}
{{- else if eq .Values.schedulerName "default-scheduler" -}}
  {{- fail "schedulerName: the cluster's own scheduler is default-scheduler: two would place the same pods; set mode to replace" -}}
{{- else if .Values.schedulerName -}}
  {{- $_ := set $profile "schedulerName" .Values.schedulerName -}}
{{- end -}}

{{- $plugins := dict "ZoneSpread" .Values.plugins.zoneSpread "ReserveCache" .Values.plugins.reserveCache "PermitGate" .Values.plugins.permitGate -}}
{{- $multiPoint := $profile.plugins.multiPoint -}}
{{- $enabled := list -}}
{{- range $multiPoint.enabled -}}
  {{- $values := get $plugins .name -}}
  {{- if $values.enabled -}}
    {{- if hasKey $values "weight" -}}{{- $_ := set . "weight" $values.weight -}}{{- end -}}
    {{- $enabled = append $enabled . -}}
  {{- end -}}
{{- end -}}
{{- $_ := set $multiPoint "enabled" $enabled -}}
{{- if not $plugins.ZoneSpread.enabled -}}{{- $_ := unset $multiPoint "disabled" -}}{{- end -}}

{{- /* DynamicResources is named in postFilter only to keep its place ahead of ours. */ -}}
{{- $postFilter := list -}}
{{- $ours := false -}}
{{- range $profile.plugins.postFilter.enabled -}}
  {{- if not (hasKey $plugins .name) -}}
    {{- $postFilter = append $postFilter . -}}
  {{- else if (get $plugins .name).enabled -}}
    {{- $postFilter = append $postFilter . -}}
    {{- $ours = true -}}
  {{- end -}}
{{- end -}}
{{- if $ours -}}
  {{- $_ := set $profile.plugins.postFilter "enabled" $postFilter -}}
{{- else -}}
  {{- $_ := unset $profile.plugins "postFilter" -}}
{{- end -}}

{{- $pluginConfig := list -}}
{{- range $name := list "ZoneSpread" "ReserveCache" "PermitGate" -}}
  {{- $values := get $plugins $name -}}
  {{- $args := dict -}}
  {{- range $profile.pluginConfig -}}{{- if eq .name $name -}}{{- $args = .args -}}{{- end -}}{{- end -}}
  {{- $args = mergeOverwrite $args (deepCopy $values.args) -}}
  {{- if and $values.enabled $args -}}
    {{- $pluginConfig = append $pluginConfig (dict "name" $name "args" $args) -}}
  {{- end -}}
{{- end -}}
{{- if $pluginConfig -}}
  {{- $_ := set $profile "pluginConfig" $pluginConfig -}}
{{- else -}}
  {{- $_ := unset $profile "pluginConfig" -}}
{{- end -}}

{{- if not $enabled -}}{{- fail "plugins: none is enabled, which is kube-scheduler itself" -}}{{- end -}}
{{- $_ := set $config "profiles" (concat (list $profile) .Values.extraProfiles) -}}
{{- toYaml $config -}}
{{- end -}}
