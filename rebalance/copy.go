package rebalance

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/internal/pods"
	"zonewise.dev/sim"
	"zonewise.dev/sim/kinds"
)

// copyState is a copy on which moves are tried. It is at rest between two calls.
type copyState struct {
	sim      *sim.Sim
	options  Options
	seed     int64
	standing Standing // as the pods stand with all moves that were accepted
	tried    Standing // with those that are being tried
}

// verdict is what a copy says about moves that were made together.
type verdict struct {
	// faults has for each move why it is refused; empty for one that is not at fault.
	faults []string
	// common is a reason that is none move's in particular.
	common string
	// to has the zone of each replacement.
	to []string
}

func (v *verdict) ok() bool {
	if v.common != "" {
		return false
	}
	for _, fault := range v.faults {
		if fault != "" {
			return false
		}
	}
	return true
}

// why is the reason against a move.
func (v *verdict) why(number int) string { return cmp.Or(v.faults[number], v.common) }

// move evicts pods together, lets the scheduler place their replacements, and says what has come of it. seed is added
// to that of the copy.
func (c *copyState) move(ctx context.Context, batch []candidate, seed int64) (*verdict, error) {
	c.sim.SetSeed(c.seed + seed)
	v := &verdict{faults: make([]string, len(batch)), to: make([]string, len(batch))}
	waited, evicted, began := waitingPods(c.sim), len(c.sim.Evicted()), c.sim.Now()
	budgets := healthyPods(c.sim)
	for i, m := range batch {
		if err := c.sim.Evict(m.pod); err != nil {
			v.faults[i] = "the eviction is refused: " + err.Error()
			continue
		}
		evicted++
	}
	if err := c.sim.Run(ctx); err != nil {
		return nil, err
	}
	c.tried = StandingOf(c.sim, c.options)
	left := map[string]int{} // moves that leave a node
	for _, m := range batch {
		left[m.pod.Spec.NodeName]++
	}
	replacements := map[types.UID]*v1.Pod{}
	made := c.sim.Replaced()
	for _, pod := range sim.List[*v1.Pod](c.sim) {
		if replaced := made[pod.UID]; replaced != nil && pods.Live(pod) {
			replacements[replaced.UID] = pod
		}
	}
	own := map[types.UID]bool{}
	before, after := c.standing.bySet(), c.tried.bySet()
	for i, m := range batch {
		if v.faults[i] != "" {
			continue
		}
		if now := replacements[m.pod.UID]; now != nil {
			own[now.UID], v.to[i] = true, zoneOf(c.sim, now)
			v.faults[i] = c.whyNotGood(now, began)
			if left[now.Spec.NodeName] > 0 && v.faults[i] == "" {
				v.faults[i] = "its replacement would be on a node that another move leaves"
			}
		} else {
			v.faults[i] = "no controller makes a pod in its place"
		}
		if v.faults[i] == "" && after[m.set] >= before[m.set] {
			v.faults[i] = fmt.Sprintf("its replacement would be in zone %s, with which nothing is better", v.to[i])
		}
	}
	v.common = c.worse(waited, own, budgets, before, after)
	if len(c.sim.Evicted()) > evicted {
		v.common = "a pod would be preempted"
	}
	return v, nil
}

// whyNotGood says what is against the place of a replacement by itself; empty if nothing is.
func (c *copyState) whyNotGood(pod *v1.Pod, began time.Time) string {
	zone := zoneOf(c.sim, pod)
	switch {
	case pod.Spec.NodeName == "":
		return "its replacement would wait: " + c.sim.WhyWaits(pod)
	case pod.Status.StartTime.Sub(began) > BindTime:
		return fmt.Sprintf("its replacement would wait for more than %s", BindTime)
	case zone == "":
		return "its replacement would be on a node without a zone"
	case c.standing.zones[zone] != Up:
		return fmt.Sprintf("its replacement would be in zone %s, which has lost most of its nodes", zone)
	}
	return ""
}

// worse says what has become worse besides the moved pods: a gang has no fewer members bound while no pod is preempted.
func (c *copyState) worse(
	waited, own map[types.UID]bool, budgets map[string]int32, before, after map[string]int64,
) string {
	for uid := range waitingPods(c.sim) {
		if !waited[uid] && !own[uid] {
			return "another pod would wait"
		}
	}
	for name, healthy := range healthyPods(c.sim) {
		if healthy < budgets[name] {
			return fmt.Sprintf("the budget %s would have fewer healthy pods", name)
		}
	}
	if c.tried.Missing > c.standing.Missing {
		return "less room would be held"
	}
	for set, pods := range after {
		if pods > before[set] {
			return "another rule would be broken further"
		}
	}
	return ""
}

// accept keeps the moves that were tried.
func (c *copyState) accept() {
	c.standing = c.tried
	c.sim.Mark()
}

// takeBack makes the copy what it was before the moves that were tried. If a plugin remembers them in a status, or
// gangs wait, which starve with the time that passes, another copy takes its place.
func (c *copyState) takeBack(ctx context.Context) error {
	c.sim.Rewind()
	if err := c.sim.Run(ctx); err != nil {
		return err
	}
	if !gangsWait(c.sim) && !otherStatus[*v1alpha1.ZoneSpreadPolicy](c.sim) &&
		!otherStatus[*v1alpha1.ZoneReservation](c.sim) &&
		!otherStatus[*schedulingv1alpha1.PodGroup](c.sim) &&
		!otherStatus[*kinds.NativePodGroup](c.sim) {
		return nil
	}
	c.sim.Rewind()
	fork, err := c.sim.Fork(ctx, nil)
	if err != nil {
		return err
	}
	c.sim.Close()
	c.sim = fork
	c.sim.Mark()
	return nil
}

// gangsWait reports whether a member of a gang has no node.
func gangsWait(s *sim.Sim) bool {
	return slices.ContainsFunc(sim.List[*v1.Pod](s), func(pod *v1.Pod) bool {
		return pod.Spec.NodeName == "" && (pod.Labels[schedulingv1alpha1.PodGroupLabel] != "" || pod.Spec.SchedulingGroup != nil)
	})
}

// otherStatus reports whether an object of a kind has another status than at the mark.
func otherStatus[T client.Object](s *sim.Sim) bool {
	for _, change := range sim.Changes[T](s) {
		if !equality.Semantic.DeepEqual(statusOf(change.Before), statusOf(change.After)) {
			return true
		}
	}
	return false
}

// statusOf returns what of an object's status plugins decide by.
func statusOf(obj client.Object) any {
	switch o := obj.(type) {
	case *v1alpha1.ZoneSpreadPolicy:
		if o != nil {
			return o.Status.Zones
		}
	case *v1alpha1.ZoneReservation:
		if o != nil {
			return o.Status.Zones
		}
	case *schedulingv1alpha1.PodGroup:
		if o != nil {
			return o.Status
		}
	case *kinds.NativePodGroup:
		return kinds.ConditionsOf(o)
	}
	return nil
}

// waitingPods are those without a node.
func waitingPods(s *sim.Sim) map[types.UID]bool {
	out := map[types.UID]bool{}
	for _, pod := range sim.List[*v1.Pod](s) {
		if pod.Spec.NodeName == "" && pods.Live(pod) {
			out[pod.UID] = true
		}
	}
	return out
}

// healthyPods counts those of each budget.
func healthyPods(s *sim.Sim) map[string]int32 {
	out := map[string]int32{}
	for _, b := range sim.List[*policyv1.PodDisruptionBudget](s) {
		out[b.Namespace+"/"+b.Name] = b.Status.CurrentHealthy
	}
	return out
}

func zoneOf(s *sim.Sim, pod *v1.Pod) string {
	node, ok := sim.Get[*v1.Node](s, "", pod.Spec.NodeName)
	if !ok {
		return ""
	}
	return node.Labels[v1.LabelTopologyZone]
}

func compareRefused(a, b Refused) int {
	return cmp.Or(strings.Compare(a.Workload, b.Workload), strings.Compare(a.From, b.From))
}
