package worlds

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestAtRest: the pods of a lost zone run again of which a certificate says so, in both forms of the loss, and pods are
// moved back to a zone that comes late.
func TestAtRest(t *testing.T) {
	nodes := []Step{Add{Node{Name: "a1", Zone: "a", CPU: 4}}, Add{Node{Name: "b1", Zone: "b", CPU: 4}}}
	late := []Step{Wait{time.Minute}, Add{Node{Name: "c1", Zone: "c", CPU: 4}}}
	web := Run{Workload{Name: "web", Kind: Deployment, Replicas: 6, CPU: 1, Priority: 100}}
	batch := Run{Workload{Name: "batch", Kind: StatefulSet, Replicas: 2, CPU: 1}}
	gang := Run{Workload{Name: "gang", Kind: NativeGang, Replicas: 3, CPU: 3}} // one on each node
	spread := Apply{Policy{Name: "p", App: "web", MaxSkew: 1}}
	for name, tt := range map[string]struct {
		steps            []Step
		atRest           Step
		displaced, moved int
	}{
		"a zone goes":                        {steps: slices.Concat(late, []Step{spread, web}), atRest: LoseCertified{Zone: "a"}, displaced: 2},
		"a zone fails":                       {steps: slices.Concat(late, []Step{spread, web}), atRest: LoseCertified{Zone: "a", NodesStay: true}, displaced: 2},
		"its pods preempt":                   {steps: slices.Concat(late, []Step{spread, web, Run{Workload{Name: "fill", Kind: Deployment, Replicas: 6, CPU: 1}}}), atRest: LoseCertified{Zone: "a"}, displaced: 2},
		"another node was lost before":       {steps: slices.Concat([]Step{Add{Node{Name: "b2", Zone: "b", CPU: 4}}, gang, Lose{Node: "b2"}, Add{Node{Name: "c2", Zone: "c", CPU: 8}}}, late), atRest: LoseCertified{Zone: "a"}, displaced: 1},
		"there is no room":                   {steps: []Step{web, batch}, atRest: LoseCertified{Zone: "a"}},
		"a zone comes late":                  {steps: slices.Concat([]Step{spread, web}, late), atRest: Rebalance{}, moved: 2},
		"a zone comes late, and fills":       {steps: slices.Concat([]Step{spread, web}, late, []Step{Run{Workload{Name: "fill", Kind: Deployment, Replicas: 6, CPU: 1}}}), atRest: Rebalance{}},
		"nothing is more than a rule allows": {steps: []Step{spread, web, batch}, atRest: Rebalance{}},
	} {
		t.Run(name, func(t *testing.T) {
			report := Play(t, World{Native: true, Steps: slices.Concat(nodes, tt.steps), AtRest: []Step{tt.atRest}})
			require.Empty(t, report.Failures)
			require.Equal(t, []int{tt.displaced, tt.moved}, []int{report.Displaced, report.Moved})
		})
	}
}
