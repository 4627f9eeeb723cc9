// Package e2e runs upstream's end-to-end tests of sig-scheduling, the conformance tests among them, in clusters whose
// scheduler is kube-scheduler and in others whose scheduler is Zonewise with its shipped profile. A cluster is etcd,
// kube-apiserver, kube-controller-manager and kwok in place of kubelets; there is one of each scheduler as Kubernetes
// is installed, and one with the feature gate GenericWorkload on, which the tests of native gangs and of workload-aware
// preemption need.
//
// The tests are those of the k8s.io/kubernetes module that go.mod requires, package test/e2e/scheduling. The test
// binary runs them in a process of its own, itself (suite_test.go). What passes with kube-scheduler has to pass with
// Zonewise; what passes with neither is listed with its reason in listed_test.go, and the list has nothing else.
//
// "make e2e" runs it, and "make test-all". Behind TEST_ARGS, -focus REGEXP takes the specs whose names match, and -logs
// DIR keeps what the programs and the specs print.
package e2e
