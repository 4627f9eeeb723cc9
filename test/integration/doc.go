// Package integration runs the scheduler with the pack against a real API server: what depends on its admission, its
// permissions, its CustomResourceDefinitions, its controllers or its leases, and what happens to processes. What a
// cluster in memory shows as well is in test/framework, and what holds at every moment of random histories in
// test/worlds and, on a real API server, in test/chaos.
//
// # Contract
//
// Two tests run at a time, each with an etcd and a kube-apiserver for itself ([controlPlane], started by TestMain),
// since a scheduler sees all nodes; a few of kube-controller-manager's controllers are started for the tests that need
// Deployments. Each test has a [world] of its own: a namespace, its nodes, and one or more schedulers. A scheduler is
// built by kube-scheduler's own app.Setup from one of the configurations of zonewise.dev/config, with a pack of its own
// and with the least-privilege identity of zonewise.dev/manifests, and runs in the process of the test, so that a test
// can look into its ledger. test/manifests shows that it is enough, and no more.
//
// At the end of every test its world checks what must always be true (invariants_test.go), deletes what
// the test made, and checks that the ledgers are empty again.
//
// A test waits for conditions, with waitTimeout as the bound. For pods it waits by the watch, and asks the API server
// when that shows a change.
//
// # Non-goals
//
// Leader election, flags and exit codes belong to the program and are tested in cmd/scheduler. Verdicts and
// scores are compared with upstream's in test/parity.
package integration
