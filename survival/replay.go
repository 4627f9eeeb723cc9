package survival

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/internal/nodes"
	"zonewise.dev/internal/pods"
	"zonewise.dev/sim"
	"zonewise.dev/sim/kinds"
)

// replayer is a copy of a cluster on which losses are replayed, one after the other. It belongs to one form of losses
// and one order of lost pods.
type replayer struct {
	start  *baseline
	form   form
	change func(*sim.Options)
	copy   *sim.Sim // nil before the first replay, and after a loss that could not be taken back
	// lost are the nodes that the last loss has taken.
	lost map[string]bool
}

// close ends the copy, if there is one.
func (s *replayer) close() {
	if s.copy != nil {
		s.copy.Close()
		s.copy = nil
	}
}

// outcome is what one replay of a loss has come to.
type outcome struct {
	nodes int // lost ones
	// moves are the pods that have lost the place that they had, by namespace and name.
	moves []move
	rooms map[string]*room // by zone
}

// move is a pod that has lost its place, and the live pod that is there in place of it, if any: its replacement,
// directly or not.
type move struct {
	before, now *v1.Pod
	why         string // why the latter does not run, if it does not; else empty
	// elsewhere: another scheduler's, of which the copy knows only what kube-scheduler would do.
	elsewhere bool
}

// places returns where the displaced pods run again.
func (r *outcome) places() places {
	out := make(places, len(r.moves))
	for i := range r.moves {
		if m := &r.moves[i]; m.runs() {
			out[m.before.UID] = m.now.Spec.NodeName
		}
	}
	return out
}

// anyWaits reports whether a pod waits that one of the certificates protects.
func (r *outcome) anyWaits(certificates []*certificate) bool {
	return slices.ContainsFunc(r.moves, func(m move) bool {
		return !m.runs() && slices.ContainsFunc(certificates, func(c *certificate) bool { return c.protects(m.before) })
	})
}

// runs reports whether the pod runs again.
func (m *move) runs() bool { return m.now != nil && m.why == "" }

// replayOnce replays a loss on a copy that ends with it.
func (s *replayer) replayOnce(ctx context.Context, l loss) (*outcome, error) {
	defer s.close()
	return s.replay(ctx, l)
}

// replay replays a loss. The copy is at rest before it, and stays as the loss has left it.
func (s *replayer) replay(ctx context.Context, l loss) (*outcome, error) {
	if s.copy == nil {
		var err error
		s.copy, err = s.start.state.Fork(ctx, s.change)
		if err != nil {
			return nil, err
		}
		s.copy.Mark()
	}
	lose := s.copy.Lose
	if s.form == nodesStay {
		lose = s.copy.Fail
	}
	taken := lose(l.includes)
	s.lost = map[string]bool{}
	for _, node := range taken.Nodes {
		s.lost[node.Name] = true
	}
	staying := taken.Staying // and not the rest of the loss, which the memory is better without
	if err := s.copy.Run(ctx); err != nil {
		return nil, err
	}
	changes := sim.Changes[*v1.Pod](s.copy)
	moved, now := slices.Concat(s.start.moved, staying), slices.Clone(staying)
	changed := map[types.UID]bool{}
	for _, c := range changes {
		if c.Before != nil {
			moved = append(moved, c.Before)
			changed[c.Before.UID] = true
		}
		if c.After != nil {
			now = append(now, c.After)
		}
	}
	for _, pod := range s.start.inPlaceOfMoved {
		if !changed[pod.UID] {
			now = append(now, pod)
		}
	}
	return &outcome{
		nodes: len(s.lost), moves: s.movesOf(s.start.placedBefore(moved), now),
		rooms: s.start.usage.afterChanges(sim.Changes[*v1.Node](s.copy), changes),
	}, nil
}

// movesOf says which of the pods that had a place have lost it, and what is there in place of them, which is among
// other pods.
func (s *replayer) movesOf(before, now []*v1.Pod) []move {
	inPlaceOf := s.successorsOf(now)
	var out []move
	for _, pod := range before {
		m := move{before: pod, now: inPlaceOf[pod.UID], elsewhere: s.copy.OfOtherScheduler(pod)}
		switch {
		case m.now == nil:
			m.why = cmp.Or(s.copy.WhyNotReplaced(pod), "no controller replaces it")
		case m.now.Spec.NodeName == "":
			m.why = cmp.Or(s.copy.WhyWaits(m.now), "it has no node")
		case s.isDead(m.now.Spec.NodeName):
			m.why = fmt.Sprintf("it tolerates the taint %s and is on node %s, which does not run it", v1.TaintNodeUnreachable, m.now.Spec.NodeName)
		case m.now.UID == m.before.UID:
			continue
		}
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b move) int { return compareByName(a.before, b.before) })
	return out
}

// isDead reports whether a node does not run its pods, although its object may be there.
func (s *replayer) isDead(node string) bool { return s.lost[node] || s.start.failed[node] }

// successorsOf returns the live pods by the UIDs of those in whose place they are: their own, or that of the first pod
// that a controller has replaced by them.
func (s *replayer) successorsOf(pods []*v1.Pod) map[types.UID]*v1.Pod {
	replaced := s.copy.Replaced()
	maps.Copy(replaced, s.start.replaced)
	out := make(map[types.UID]*v1.Pod, len(pods))
	for _, pod := range pods {
		if live(pod) {
			out[firstOf(pod.UID, replaced)] = pod
		}
	}
	return out
}

// firstOf returns the UID of the first pod in whose place one is.
func firstOf(uid types.UID, replaced map[types.UID]*v1.Pod) types.UID {
	for replaced[uid] != nil {
		uid = replaced[uid].UID
	}
	return uid
}

// revert makes the copy what it was before the loss. If a plugin then says something else in a status than before, it
// remembers the loss, and the next replay has a new copy.
func (s *replayer) revert(ctx context.Context) error {
	s.copy.Rewind()
	if err := s.copy.Run(ctx); err != nil {
		return err
	}
	if statusChanged(sim.Changes[*v1alpha1.ZoneSpreadPolicy](s.copy)) ||
		statusChanged(sim.Changes[*v1alpha1.ZoneReservation](s.copy)) ||
		statusChanged(sim.Changes[*schedulingv1alpha1.PodGroup](s.copy)) || statusChanged(sim.Changes[*kinds.NativePodGroup](s.copy)) {
		s.close()
	}
	return nil
}

// statusChanged reports whether an object has another content than it had.
func statusChanged[T client.Object](changes []sim.Change[T]) bool {
	return slices.ContainsFunc(changes, func(c sim.Change[T]) bool {
		return statusContent(c.Before) != statusContent(c.After)
	})
}

func statusContent(obj client.Object) string {
	var status any
	switch o := obj.(type) {
	case *schedulingv1alpha1.PodGroup:
		status = o.Status
	case *kinds.NativePodGroup:
		status = kinds.ConditionsOf(o)
	default:
		return strings.Join(decisiveState(obj), "\n")
	}
	data, _ := json.Marshal(status) // plain data
	return string(data)
}

// margins returns what the zones have of some resources, by zone.
func (r *outcome) margins(resources map[v1.ResourceName]bool) []v1alpha1.SurvivalMargin {
	var out []v1alpha1.SurvivalMargin
	for _, zone := range slices.Sorted(maps.Keys(r.rooms)) {
		out = append(out, r.rooms[zone].marginOf(zone, resources))
	}
	return out
}

// lowerMargins lowers margins to those of another replay of the same loss: the zones and resources are the same.
func lowerMargins(margins, others []v1alpha1.SurvivalMargin) {
	for i := range margins {
		for name, free := range others[i].Free {
			if free.Cmp(margins[i].Free[name]) < 0 {
				margins[i].Free[name] = free
			}
		}
	}
}

// live reports whether a pod counts: it neither terminates nor has ended.
func live(pod *v1.Pod) bool { return pods.Live(pod) }

func ended(pod *v1.Pod) bool { return pods.Ended(pod) }

func usable(node *v1.Node) bool { return nodes.Usable(node) }

func requestsOf(pod *v1.Pod) v1.ResourceList {
	return resource.PodRequests(pod, resource.PodResourcesOptions{})
}
