// Package descheduler runs the descheduler that ZoneRebalances are compared with.
package descheduler

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"zonewise.dev/test/internal/program"
)

// policy has it look at constraints of both kinds, and evict what fits elsewhere.
const policy = `apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
profiles:
- name: default
  pluginConfig:
  - name: DefaultEvictor
    args: {nodeFit: true}
  - name: RemovePodsViolatingTopologySpreadConstraint
    args: {constraints: [DoNotSchedule, ScheduleAnyway], topologyBalanceNodeFit: true}
  plugins: {balance: {enabled: [RemovePodsViolatingTopologySpreadConstraint]}}
`

// Descheduler is the program, with the files that it reads.
type Descheduler struct{ path, policy, kubeconfig string }

// New builds the program that hack/tools pins, unless it is there, and writes its files to a directory. root is the
// root of the repository.
func New(root, dir string, kubeconfig []byte) (*Descheduler, error) {
	path, err := program.Descheduler(root)
	if err != nil {
		return nil, err
	}
	d := &Descheduler{path: path, policy: filepath.Join(dir, "descheduler.yaml"), kubeconfig: filepath.Join(dir, "descheduler.kubeconfig")}
	if err := os.WriteFile(d.policy, []byte(policy), 0o600); err != nil {
		return nil, err
	}
	return d, os.WriteFile(d.kubeconfig, kubeconfig, 0o600)
}

// Run runs it once. An error has what it has printed.
func (d *Descheduler) Run(ctx context.Context) error {
	cmd := exec.CommandContext(
		ctx, d.path, "--policy-config-file="+d.policy, "--kubeconfig="+d.kubeconfig, "--secure-port=0", "--disable-metrics", "-v=3",
	)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}
