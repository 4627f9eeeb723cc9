package survival

import (
	"context"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/resource"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/internal/amount"
	"zonewise.dev/sim"
)

// replay is what one replay of a loss has come to.
type replay struct {
	nodes int // lost ones
	// inPlaceOf has the live pod that is there afterwards for each pod that was there before: itself or, directly or not, its
	// replacement.
	inPlaceOf map[types.UID]*v1.Pod
	whys      map[types.UID]string // of those that wait
	rooms     map[string]*room     // by zone
}

// room is what the usable nodes of a zone have.
type room struct{ free, allocatable map[v1.ResourceName]int64 }

// newReplay replays the loss of a zone. The seed decides what a cluster leaves to chance; order, if not nil, in which order
// controllers replace the lost pods.
func newReplay(ctx context.Context, base *sim.Sim, zone string, seed int64, order func(a, b *v1.Pod) int) (*replay, error) {
	s, err := base.Fork(ctx, func(o *sim.Options) { o.Seed, o.Order = seed, order })
	if err != nil {
		return nil, err
	}
	defer s.Close()
	loss := s.Lose(func(node *v1.Node) bool { return node.Labels[v1.LabelTopologyZone] == zone })
	if err := s.Run(ctx); err != nil {
		return nil, err
	}
	r := &replay{nodes: len(loss.Nodes), inPlaceOf: map[types.UID]*v1.Pod{}, whys: map[types.UID]string{}, rooms: map[string]*room{}}
	replaced := s.Made()
	used := map[string]v1.ResourceList{}
	for _, pod := range sim.List[*v1.Pod](s) {
		if pod.Spec.NodeName != "" && !ended(pod) {
			sum := used[pod.Spec.NodeName]
			if sum == nil {
				sum = v1.ResourceList{}
				used[pod.Spec.NodeName] = sum
			}
			for name, quantity := range requestsOf(pod) {
				quantity.Add(sum[name])
				sum[name] = quantity
			}
		}
		if !live(pod) {
			continue
		}
		first := pod.UID
		for replaced[first] != nil {
			first = replaced[first].UID
		}
		r.inPlaceOf[first] = pod
		if pod.Spec.NodeName == "" {
			r.whys[pod.UID] = s.WhyWaits(pod)
		}
	}
	for _, node := range sim.List[*v1.Node](s) {
		if zone := node.Labels[v1.LabelTopologyZone]; usable(node) {
			if r.rooms[zone] == nil {
				r.rooms[zone] = &room{free: map[v1.ResourceName]int64{}, allocatable: map[v1.ResourceName]int64{}}
			}
			r.rooms[zone].add(node, used[node.Name])
		}
	}
	return r, nil
}

// why returns why a protected pod does not run, by what is in its place.
func (r *replay) why(now *v1.Pod) string {
	if now == nil {
		return "no controller replaces it"
	}
	return r.whys[now.UID]
}

func (r *room) add(node *v1.Node, used v1.ResourceList) {
	for name, quantity := range node.Status.Allocatable {
		r.allocatable[name] += amount.Of(name, quantity)
		r.free[name] += max(0, amount.Of(name, quantity)-amount.Of(name, used[name]))
	}
}

// margin returns what the zones have of some resources, by zone.
func (r *replay) margin(of map[v1.ResourceName]bool) []v1alpha1.SurvivalMargin {
	var out []v1alpha1.SurvivalMargin
	for _, zone := range slices.Sorted(maps.Keys(r.rooms)) {
		m := v1alpha1.SurvivalMargin{Zone: zone, Free: v1.ResourceList{}, Allocatable: v1.ResourceList{}}
		for name := range of {
			if n := r.rooms[zone].allocatable[name]; n > 0 {
				m.Free[name], m.Allocatable[name] = *amount.Quantity(name, r.rooms[zone].free[name]), *amount.Quantity(name, n)
			}
		}
		out = append(out, m)
	}
	return out
}

// least lowers margins to those of another replay of the same loss: the zones and resources are the same.
func least(margins, others []v1alpha1.SurvivalMargin) {
	for i := range margins {
		for name, free := range others[i].Free {
			if free.Cmp(margins[i].Free[name]) < 0 {
				margins[i].Free[name] = free
			}
		}
	}
}

// live reports whether a pod counts: it neither terminates nor has ended.
func live(pod *v1.Pod) bool { return pod.DeletionTimestamp == nil && !ended(pod) }

func ended(pod *v1.Pod) bool {
	return pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
}

// usable reports whether a node is ready and not cordoned.
func usable(node *v1.Node) bool {
	return !node.Spec.Unschedulable && slices.ContainsFunc(node.Status.Conditions, func(c v1.NodeCondition) bool {
		return c.Type == v1.NodeReady && c.Status == v1.ConditionTrue
	})
}

func requestsOf(pod *v1.Pod) v1.ResourceList {
	return resource.PodRequests(pod, resource.PodResourcesOptions{})
}
