package explain

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"zonewise.dev/buy"
	"zonewise.dev/cluster/census"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/cmd/zonewise/show"
	"zonewise.dev/cmd/zonewise/status"
	"zonewise.dev/internal/pods"
	"zonewise.dev/sim"
)

// nominationText says what a pod waits for on the node that it is nominated to; empty without a nomination.
func nominationText(c *census.Census, node string) string {
	if node == "" {
		return ""
	}
	ending, last := 0, time.Time{}
	for _, p := range snapshot.List[*corev1.Pod](c.Snapshot) {
		if p.Spec.NodeName == node && p.DeletionTimestamp != nil && !pods.Ended(p) {
			ending++
			if p.DeletionTimestamp.After(last) {
				last = p.DeletionTimestamp.Time
			}
		}
	}
	switch {
	case c.FindNode(node) == nil:
		return fmt.Sprintf("nominated to node %s, which does not exist", node)
	case ending == 0:
		return fmt.Sprintf("nominated to node %s, where no pod has to end", node)
	}
	when := ", which have had their grace period"
	if left := last.Sub(c.Now); left > 0 {
		when = " in the next " + duration.HumanDuration(left)
	}
	return fmt.Sprintf("nominated to node %s: waits for %s there to end%s", node, show.Plural(ending, "pod"), when)
}

// placePod has the scheduler place a pod that no node would take as it is, by preemption or when time has passed, and
// otherwise asks which further node would take it.
func (x *Explainer) placePod(ctx context.Context, s *sim.Sim, pod *corev1.Pod, answer *sim.Evaluation, r *Report) error {
	began := s.Now()
	if err := s.Run(ctx); err != nil {
		return err
	}
	placed, there := sim.Get[*corev1.Pod](s, pod.Namespace, pod.Name)
	switch victims := victimsOn(s, placed); {
	case !there:
	case placed.Spec.NodeName == "":
		if sim.NodeBound(pod) {
			r.Next = append(r.Next, "room on the node that its controller has made it for")
			return nil
		}
		return x.buyForPod(ctx, s, pod, answer, r)
	case len(victims) > 0:
		r.Next = append(r.Next, fmt.Sprintf("no change is needed: it preempts %s on node %s. %s", namesText(victims), placed.Spec.NodeName, whenTried(r)))
	default:
		text := fmt.Sprintf("no change is needed: it would get node %s", placed.Spec.NodeName)
		if bound := pods.Condition(placed, corev1.PodScheduled); bound != nil {
			if later := bound.LastTransitionTime.Sub(began); later > time.Second {
				text += " in " + duration.HumanDuration(later.Round(10*time.Second))
			}
		}
		r.Next = append(r.Next, text+", when pods have ended or the grace period of a policy is over")
	}
	return nil
}

// victimsOn returns the pods that have been preempted on a pod's node.
func victimsOn(s *sim.Sim, pod *corev1.Pod) []*corev1.Pod {
	return slices.DeleteFunc(s.Evicted(), func(victim *corev1.Pod) bool { return pod == nil || victim.Spec.NodeName != pod.Spec.NodeName })
}

// namesText names the first of some pods, and counts the others.
func namesText(victims []*corev1.Pod) string {
	const most = 3
	var names []string
	for _, p := range victims[:min(len(victims), most)] {
		names = append(names, p.Namespace+"/"+p.Name)
	}
	text := strings.Join(names, ", ")
	if more := len(victims) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// buyForPod says in which zones one more node would take the pod.
func (x *Explainer) buyForPod(ctx context.Context, s *sim.Sim, pod *corev1.Pod, answer *sim.Evaluation, r *Report) error {
	steps, err := x.nodesThatHelp(answer, 1, func(bought map[string]int) (bool, error) {
		fresh := map[string]bool{}
		for like, n := range bought {
			names, err := s.AddNodes(n, like)
			if err != nil {
				return false, err
			}
			for _, name := range names {
				fresh[name] = true
				defer s.RemoveNode(name)
			}
		}
		answer, err := s.Evaluate(ctx, pod)
		return err == nil && slices.ContainsFunc(answer.FittingNodes(), func(n *corev1.Node) bool { return fresh[n.Name] }), err
	})
	if err == nil && len(steps) == 0 {
		steps = []string{"more nodes like those of the cluster would not: see above what is in the way"}
	}
	r.Next = append(r.Next, steps...)
	return err
}

// mostZones is the largest number of zones in which more nodes are tried.
const mostZones = 5

// nodesThatHelp says for each zone which nodes, like those that it has, would be enough; and if in none they are, which
// of several zones. answer is that of the nodes about a pod: those like nodes that would not take it if they were empty
// are not tried. For most and enough see buy.Search.
func (x *Explainer) nodesThatHelp(answer *sim.Evaluation, most int, enough func(bought map[string]int) (bool, error)) ([]string, error) {
	all := buy.Models(answer.NodesIfEmpty())
	var steps []string
	zones := 0
	for _, zone := range x.Census.ZoneNames() {
		models := slices.DeleteFunc(slices.Clone(all), func(m buy.Model) bool { return m.Zone != zone })
		if len(models) == 0 || zones == mostZones {
			continue
		}
		zones++
		bought, err := buy.Search(models, most, enough)
		if err != nil {
			return nil, err
		}
		if bought != nil {
			steps = append(steps, fmt.Sprintf("in zone %s: %s", status.ZoneText(zone), nodesText(models, bought)))
		}
	}
	if len(steps) > 0 || zones < 2 || most < 2 {
		return steps, nil
	}
	bought, err := buy.Search(all, most, enough)
	if bought != nil {
		steps = append(steps, "in several zones: "+nodesText(all, bought))
	}
	return steps, err
}

// nodesText lists what is bought, in the order of the models.
func nodesText(models []buy.Model, bought map[string]int) string {
	var parts []string
	for _, m := range models {
		if n := bought[m.Node]; n > 0 {
			parts = append(parts, fmt.Sprintf("%s like %s", show.Plural(n, "more node"), m.Node))
		}
	}
	return strings.Join(parts, ", ")
}
