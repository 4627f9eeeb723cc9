package census

import (
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	schedv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/plugins/permitgate/podgroup"
	"zonewise.dev/sim/kinds"
)

// nativeMark ends the keys of gangs of Kubernetes' own API: PodGroups of both may have one name.
const nativeMark = " (native)"

// Key returns the key of the gang of a PodGroup, "namespace/name", and for a native one "namespace/name (native)".
func Key(namespace, name string, native bool) string {
	key := namespace + "/" + name
	if native {
		key += nativeMark
	}
	return key
}

// Gang is a PodGroup with its members. Groups of scheduling.k8s.io without a gang policy are none.
type Gang struct {
	// Key is that of Key.
	Key             string
	Namespace, Name string
	// Native: the PodGroup is of scheduling.k8s.io.
	Native bool
	// Group or NativeGroup is the PodGroup; both are nil when it does not exist, or could not be read.
	Group       *schedv1alpha1.PodGroup
	NativeGroup *kinds.NativePodGroup
	// Members are the live pods.
	Members []*Pod
	// Bound members have a node. Done ones have succeeded, and count for as long as their controller has live members.
	Bound, Done int
	// Waiting members have no node and may be given one. Gated ones have scheduling gates, and do not count.
	Waiting, Gated []*Pod
}

// Exists reports whether the PodGroup is known.
func (g *Gang) Exists() bool { return g.Group != nil || g.NativeGroup != nil }

// Object is the PodGroup, nil if it is not known.
func (g *Gang) Object() metav1.Object {
	switch {
	case g.Group != nil:
		return g.Group
	case g.NativeGroup != nil:
		return g.NativeGroup
	}
	return nil
}

// UID is that of the PodGroup, empty if it is not known.
func (g *Gang) UID() types.UID {
	if group := g.Object(); group != nil {
		return group.GetUID()
	}
	return ""
}

// Resource is the name of the PodGroup's kind in a snapshot that could not read it.
func (g *Gang) Resource() string {
	if g.Native {
		return kinds.NativePodGroups
	}
	return "podgroups." + schedv1alpha1.SchemeGroupVersion.Group
}

// MinMember is how many members the gang needs, 0 without a PodGroup.
func (g *Gang) MinMember() int {
	switch {
	case g.Group != nil:
		return int(g.Group.Spec.MinMember)
	case g.NativeGroup != nil && g.NativeGroup.Spec.SchedulingPolicy.Gang != nil:
		return int(g.NativeGroup.Spec.SchedulingPolicy.Gang.MinCount)
	}
	return 0
}

// MinMemberField is the field of the PodGroup that says so.
func (g *Gang) MinMemberField() string {
	if g.Native {
		return "spec.schedulingPolicy.gang.minCount"
	}
	return "spec.minMember"
}

// Conditions are those of a native PodGroup.
func (g *Gang) Conditions() []metav1.Condition {
	if g.NativeGroup == nil {
		return nil
	}
	return g.NativeGroup.Status.Conditions
}

// Missing is how many members must be bound for the gang to be whole.
func (g *Gang) Missing() int { return max(0, g.MinMember()-g.Bound-g.Done) }

// GangOf returns the key of a pod's gang, empty if it is in none.
func (c *Census) GangOf(pod *v1.Pod) string {
	if pod.Spec.SchedulingGroup != nil {
		group, named := podgroup.NativeOf(pod)
		if !named {
			return ""
		}
		key := Key(group.Namespace, group.Name, true)
		if known := c.natives[key]; known != nil && known.Spec.SchedulingPolicy.Gang == nil {
			return ""
		}
		return key
	}
	if name := pod.Labels[schedv1alpha1.PodGroupLabel]; name != "" {
		return Key(pod.Namespace, name, false)
	}
	return ""
}

// Gang returns a gang, nil when there is neither a PodGroup nor a member.
func (c *Census) Gang(key string) *Gang {
	g := &Gang{Key: key, Group: c.groups[key], NativeGroup: c.natives[key], Members: c.members[key]}
	if !g.Exists() && len(g.Members) == 0 || g.NativeGroup != nil && g.NativeGroup.Spec.SchedulingPolicy.Gang == nil {
		return nil
	}
	key, g.Native = strings.CutSuffix(key, nativeMark)
	g.Namespace, g.Name, _ = strings.Cut(key, "/")
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
	for _, controller := range c.finished[g.Key] {
		if controllers[controller] {
			g.Done++
		}
	}
	return g
}

// GangKeys returns the keys of the gangs whose PodGroups exist, and of those that pods name, in order.
func (c *Census) GangKeys() []string {
	keys := map[string]bool{}
	for key := range c.groups {
		keys[key] = true
	}
	for key, group := range c.natives {
		if group.Spec.SchedulingPolicy.Gang != nil {
			keys[key] = true
		}
	}
	for key := range c.members {
		keys[key] = true
	}
	return slices.Sorted(maps.Keys(keys))
}
