package cluster

import (
	"fmt"
	"path/filepath"
	"strings"
)

// Addresses that are configured but that nothing listens on: the demo has no
// service network.
const (
	serviceRange = "10.96.0.0/16"
	serviceIP    = "10.96.0.1"
)

// controllers are those that the demo's workload needs, and those that anybody
// who keeps the cluster and looks around expects.
var controllers = []string{
	"daemonset-controller", "deployment-controller", "disruption-controller", "garbage-collector-controller",
	"job-controller", "namespace-controller", "node-lifecycle-controller", "pod-garbage-collector-controller",
	"replicaset-controller", "root-ca-certificate-publisher-controller", "serviceaccount-controller",
	"statefulset-controller", "taint-eviction-controller",
}

// ports are the free ports that a cluster uses.
type ports struct {
	etcd, etcdPeer, apiServer, controllerManager, scheduler int
}

// pki is what the components prove themselves with.
type pki struct {
	authority         *authority
	etcd, apiServer   *pair // servers
	scheduler         *pair // server
	etcdClient        *pair
	admin             *pair
	controllerManager *pair
	kubelets, metrics *pair
	accountKey        string
}

func newPKI(dir string) (*pki, error) {
	ca, err := newAuthority(dir)
	if err != nil {
		return nil, err
	}
	p := &pki{authority: ca}
	steps := []struct {
		into  **pair
		issue func() (*pair, error)
	}{
		{&p.etcd, func() (*pair, error) { return ca.server(Etcd) }},
		{&p.apiServer, func() (*pair, error) { return ca.server(APIServer) }},
		{&p.scheduler, func() (*pair, error) { return ca.server(Scheduler) }},
		{&p.etcdClient, func() (*pair, error) { return ca.client("etcd-" + APIServer) }},
		{&p.admin, func() (*pair, error) { return ca.client("zonewise-demo:admin", "system:masters") }},
		{&p.controllerManager, func() (*pair, error) { return ca.client("system:kube-controller-manager") }},
		{&p.kubelets, func() (*pair, error) { return ca.client("zonewise-demo:kubelets") }},
		{&p.metrics, func() (*pair, error) { return ca.client("zonewise-demo:metrics") }},
	}
	for _, step := range steps {
		if *step.into, err = step.issue(); err != nil {
			return nil, err
		}
	}
	p.accountKey, err = serviceAccountKey(dir)
	return p, err
}

func etcdArgs(dir string, at ports, certs *pki) []string {
	client, peer := "https://"+address(at.etcd), "https://"+address(at.etcdPeer)
	return []string{
		"--name=demo",
		"--data-dir=" + filepath.Join(dir, "etcd"),
		"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=demo=" + peer,
		"--client-cert-auth", "--trusted-ca-file=" + certs.authority.file(),
		"--cert-file=" + certs.etcd.certFile, "--key-file=" + certs.etcd.keyFile,
		"--peer-client-cert-auth", "--peer-trusted-ca-file=" + certs.authority.file(),
		"--peer-cert-file=" + certs.etcd.certFile, "--peer-key-file=" + certs.etcd.keyFile,
		"--unsafe-no-fsync", // the data is thrown away
		"--log-level=warn",
	}
}

func apiServerArgs(dir string, at ports, certs *pki) []string {
	return []string{
		"--bind-address=" + loopback, fmt.Sprintf("--secure-port=%d", at.apiServer),
		"--advertise-address=" + loopback, "--endpoint-reconciler-type=none",
		"--cert-dir=" + dir,
		"--tls-cert-file=" + certs.apiServer.certFile, "--tls-private-key-file=" + certs.apiServer.keyFile,
		"--client-ca-file=" + certs.authority.file(), "--anonymous-auth=false",
		"--etcd-servers=https://" + address(at.etcd), "--etcd-cafile=" + certs.authority.file(),
		"--etcd-certfile=" + certs.etcdClient.certFile, "--etcd-keyfile=" + certs.etcdClient.keyFile,
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + certs.accountKey, "--service-account-signing-key-file=" + certs.accountKey,
		"--service-cluster-ip-range=" + serviceRange,
		"--authorization-mode=RBAC",
		"--enable-priority-and-fairness=false", // a handful of trusted clients; queues would only add work
		"--max-requests-inflight=0", "--max-mutating-requests-inflight=0",
		"--profiling=false",
	}
}

func controllerManagerArgs(at ports, certs *pki, kubeconfig string) []string {
	return []string{
		"--bind-address=" + loopback, fmt.Sprintf("--secure-port=%d", at.controllerManager),
		"--tls-cert-file=" + certs.scheduler.certFile, "--tls-private-key-file=" + certs.scheduler.keyFile,
		"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
		"--service-account-private-key-file=" + certs.accountKey, "--root-ca-file=" + certs.authority.file(),
		"--use-service-account-credentials=true",
		"--controllers=" + strings.Join(controllers, ","),
		"--leader-elect=false",
		"--kube-api-qps=500", "--kube-api-burst=1000",
		"--concurrent-deployment-syncs=10", "--concurrent-replicaset-syncs=10", "--concurrent-statefulset-syncs=10",
		// The simulated kubelets report rarely, to leave the processors
		// to the scheduler.
		"--node-monitor-grace-period=20m",
		"--profiling=false",
	}
}

func kwokArgs(config, kubeconfig string) []string {
	return []string{
		"--config=" + config, "--kubeconfig=" + kubeconfig,
		"--manage-all-nodes=true",
		"--node-lease-duration-seconds=0", // the status reports suffice
		"--node-ip=" + loopback, "--cidr=10.128.0.0/14",
	}
}

func schedulerArgs(at ports, certs *pki, config, kubeconfig string) []string {
	return []string{
		"--config=" + config,
		"--bind-address=" + loopback, fmt.Sprintf("--secure-port=%d", at.scheduler),
		"--tls-cert-file=" + certs.scheduler.certFile, "--tls-private-key-file=" + certs.scheduler.keyFile,
		"--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
		"-v=2",
	}
}
