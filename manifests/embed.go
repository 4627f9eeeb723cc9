package manifests

import "embed"

// FS has the files of this directory, with the directories that kubectl apply -k takes: crds, rbac, base,
// overlays/replace-kube-scheduler, overlays/second-scheduler and kubeadm, and components,
// which kustomizations name.
//
//go:embed crds rbac base overlays components kubeadm monitoring all:charts
var FS embed.FS
