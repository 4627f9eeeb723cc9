package framework

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
)

// TestSpreadGangPreempts: members with a hard spread constraint get the room of victims in every zone, which a search must not look for in
// one zone after the other.
func TestSpreadGangPreempts(t *testing.T) {
	spread := func(p *st.PodWrapper) *st.PodWrapper {
		return p.Label("job", "train").SpreadConstraint(1, v1.LabelTopologyZone, v1.DoNotSchedule, &metav1.LabelSelector{MatchLabels: map[string]string{"job": "train"}}, nil, nil, nil, nil)
	}
	for name, nodes := range map[string]int{"one node in each zone": 1, "three nodes in each zone": 3} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := newGangCluster(t)
				c.start(withArgs(preempting))
				const zonePods = 3
				for _, zone := range []string{"a", "b"} {
					for i := range nodes {
						c.addZonalNode(fmt.Sprintf("%s-%d", zone, i), zone, zonePods/nodes)
					}
					for i := range zonePods {
						c.bind(fmt.Sprintf("%s-%d", zone, i%nodes), member("", fmt.Sprintf("low-%s-%d", zone, i)).Priority(1))
					}
				}
				c.quiet()
				c.requireBound(c.createUrgent(2*zonePods, spread)...)
			})
		})
	}
}
