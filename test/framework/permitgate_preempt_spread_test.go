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

// TestSpreadGangOfTwoTemplatesPreempts: one zone takes the large members only, the other the small ones, and a member of one of them comes
// between two of the other.
func TestSpreadGangOfTwoTemplatesPreempts(t *testing.T) {
	spread := func(p *st.PodWrapper) *st.PodWrapper {
		return train(p).Priority(100).SpreadConstraint(1, v1.LabelTopologyZone, v1.DoNotSchedule, &metav1.LabelSelector{MatchLabels: map[string]string{"job": "train"}}, nil, nil, nil, nil)
	}
	bubble(t, func(t *testing.T) {
		c := newGangCluster(t)
		c.start(withArgs(preempting))
		c.addZonalNode("a", "a", 4)
		for i := range 2 {
			c.addZonalNode(fmt.Sprint("b-", i), "b", 1)
			c.bind("a", member("", fmt.Sprint("low-a-", i), 2).Priority(1))
			c.bind(fmt.Sprint("b-", i), member("", fmt.Sprint("low-b-", i)).Priority(1))
		}
		c.quiet()
		c.groups.set("urgent", 4)
		names := []string{"large-0", "large-1", "small-0", "small-1"}
		for _, name := range names {
			cpu := 1
			if name[0] == 'l' {
				cpu = 2
			}
			c.create(spread(member("urgent", name, cpu)))
		}
		c.requireBound(names...)
	})
}
