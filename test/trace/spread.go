package trace

import (
	"context"
	"fmt"
	"math"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/demo/workload"
	"zonewise.dev/sim"
	"zonewise.dev/test/clitest"
)

// perNamespace is how many services are in a namespace.
const perNamespace = 100

// Spread is a cluster as objects: its nodes, and the services as Deployments whose pods wait. Every other service has a
// policy, and the others a constraint over zones.
type Spread struct {
	*clitest.Cluster
	// Namespaces are those of the services.
	Namespaces []string
	more       []func() *v1.Pod
}

// Spread returns the objects. unsatisfiable is that of the constraints.
func (c *Cluster) Spread(unsatisfiable v1.UnsatisfiableConstraintAction) *Spread {
	out := &Spread{Cluster: clitest.New()}
	for _, n := range c.Nodes {
		out.Node(n.Name, n.Zone, fmt.Sprintf("%dm", n.Capacity[workload.CPU]), fmt.Sprintf("%dMi", n.Capacity[workload.Memory]))
	}
	var team *clitest.Cluster
	for i, service := range c.Services {
		if i%perNamespace == 0 {
			out.Namespaces = append(out.Namespaces, fmt.Sprint("team-", i/perNamespace))
			team = out.In(out.Namespaces[i/perNamespace])
		}
		name := service.Name()
		change := func(t *v1.PodTemplateSpec) {
			constraint := clitest.ZoneSpread(name, 1)
			constraint.WhenUnsatisfiable = unsatisfiable
			t.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{constraint}
		}
		if i%2 == 0 {
			change = nil
			team.Policy(name, func(p *v1alpha1.ZoneSpreadPolicySpec) {
				p.UnavailableZones.DownAfter = &metav1.Duration{Duration: 10 * time.Second}
			})
		}
		add := team.Deployment(name, int32(service.Replicas), fmt.Sprintf("%dm", service.Each[workload.CPU]), fmt.Sprintf("%dMi", service.Each[workload.Memory]), change) //nolint:gosec // hundreds
		for range service.Replicas {
			add("")
		}
		for range int(math.Round(0.2 * float64(service.Replicas))) {
			out.more = append(out.more, func() *v1.Pod { return add("") })
		}
	}
	return out
}

// ReturnZone loses zone c of a copy that has the objects and is at rest, and brings it back. Then each service grows by
// a fifth.
func (s *Spread) ReturnZone(ctx context.Context, running *sim.Sim) error {
	loss := running.Lose(func(node *v1.Node) bool { return node.Labels[v1.LabelTopologyZone] == "c" })
	if err := running.Run(ctx); err != nil {
		return err
	}
	if err := running.ReturnNodes(loss); err != nil {
		return err
	}
	if err := running.Run(ctx); err != nil {
		return err
	}
	for _, pod := range s.more {
		if err := running.Add(pod()); err != nil {
			return err
		}
	}
	return running.Run(ctx)
}
