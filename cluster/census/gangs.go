package census

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	schedv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
)

// PodGroups is the name of the kind in a snapshot that could not read it.
const PodGroups = "podgroups.scheduling.x-k8s.io"

// Gang is a PodGroup with its members.
type Gang struct {
	// Key is "namespace/name".
	Key string
	// Group is nil when the PodGroup does not exist, or could not be read.
	Group *schedv1alpha1.PodGroup
	// Members are the live pods.
	Members []*Pod
	// Bound members have a node. Done ones have succeeded, and count for as long as their controller has live members.
	Bound, Done int
	// Waiting members have no node and may be given one. Gated ones have scheduling gates, and do not count.
	Waiting, Gated []*Pod
}

// MinMember is how many members the gang needs, 0 without a PodGroup.
func (g *Gang) MinMember() int {
	if g.Group == nil {
		return 0
	}
	return int(g.Group.Spec.MinMember)
}

// Missing is how many members must be bound for the gang to be whole.
func (g *Gang) Missing() int { return max(0, g.MinMember()-g.Bound-g.Done) }

// GangOf returns "namespace/name" of a pod's PodGroup, empty if it has none. Native pod groups are another kind.
func GangOf(pod *v1.Pod) string {
	if name := pod.Labels[schedv1alpha1.PodGroupLabel]; name != "" && pod.Spec.SchedulingGroup == nil {
		return pod.Namespace + "/" + name
	}
	return ""
}

// Gang returns a gang, nil when there is neither a PodGroup nor a member.
func (c *Census) Gang(key string) *Gang {
	g := &Gang{Key: key, Group: c.groups[key], Members: c.members[key]}
	if g.Group == nil && len(g.Members) == 0 {
		return nil
	}
	controllers := map[types.UID]bool{}
	for _, p := range g.Members {
		if over := metav1.GetControllerOf(p); over != nil {
			controllers[over.UID] = true
		}
		switch {
		case !p.Waits():
			g.Bound++
		case len(p.Spec.SchedulingGates) > 0:
			g.Gated = append(g.Gated, p)
		default:
			g.Waiting = append(g.Waiting, p)
		}
	}
	for _, controller := range c.finished[key] {
		if controllers[controller] {
			g.Done++
		}
	}
	return g
}

// GangKeys returns the keys of the PodGroups, and of those that pods name, in order.
func (c *Census) GangKeys() []string {
	keys := map[string]bool{}
	for key := range c.groups {
		keys[key] = true
	}
	for key := range c.members {
		keys[key] = true
	}
	return slices.Sorted(maps.Keys(keys))
}
