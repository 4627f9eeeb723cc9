// Package config tests the configurations of zonewise.dev/config with the scheduler's own loader and
// framework: that each file is one which kube-scheduler accepts, and that it does what its comments say.
//
// It lives here and not beside the files because it needs k8s.io/kubernetes.
package config
