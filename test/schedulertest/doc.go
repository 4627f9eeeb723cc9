// Package schedulertest makes parts of kube-scheduler for tests, where their constructors differ between the minor
// versions of Kubernetes. A line for another minor version, hack/line/MINOR, has files of the same names.
package schedulertest
