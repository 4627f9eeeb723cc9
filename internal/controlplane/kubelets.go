package controlplane

import (
	"context"
	"os"
	"os/exec"

	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// StartKubelets has kwok run the pods that are bound to any node, and end those that are deleted, until ctx ends.
// config is the path of its configuration, and log gets what it prints.
func (c *ControlPlane) StartKubelets(ctx context.Context, config string, log *os.File) (*exec.Cmd, error) {
	kubeconfig, err := c.Kubeconfig("kubelets", envtest.User{Name: "kubelets", Groups: []string{"system:masters"}})
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, c.Program("kwok"), "--config="+config, "--kubeconfig="+kubeconfig,
		"--manage-all-nodes", "--node-lease-duration-seconds=0", "--node-ip="+loopback, "--cidr=10.128.0.0/14")
	cmd.Stdout, cmd.Stderr = log, log
	return cmd, cmd.Start()
}
