// Package upstream has what plugins need of kube-scheduler's framework and what differs between the minor versions of
// Kubernetes. Each file is one idea. A line for another minor version, hack/line/MINOR, has files of the same names.
package upstream
