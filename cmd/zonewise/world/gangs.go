package world

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	schedv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
)

// podGroups is how a snapshot names the kind when it could not be read.
const podGroups = "podgroups.scheduling.x-k8s.io"

// Gang is a PodGroup with its members as PermitGate counts them.
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

// GangOf returns "namespace/name" of a pod's PodGroup, empty when it has none. Kubernetes' own groups are of another kind.
func GangOf(pod *corev1.Pod) string {
	if name := pod.Labels[schedv1alpha1.PodGroupLabel]; name != "" && pod.Spec.SchedulingGroup == nil {
		return pod.Namespace + "/" + name
	}
	return ""
}

// Gang returns the pod's PodGroup as a key, empty when it has none.
func (p *Pod) Gang() string { return GangOf(p.Object) }

// Gang returns a gang as it is now, nil when there is neither a PodGroup nor a member.
func (w *World) Gang(key string) *Gang {
	g := &Gang{Key: key, Group: w.groups[key], Members: w.members[key]}
	if g.Group == nil && len(g.Members) == 0 {
		return nil
	}
	controllers := map[types.UID]bool{}
	for _, p := range g.Members {
		if over := controllerOf(p.Object); over != nil {
			controllers[over.UID] = true
		}
		switch {
		case !w.waits(p):
			g.Bound++
		case len(p.Object.Spec.SchedulingGates) > 0:
			g.Gated = append(g.Gated, p)
		default:
			g.Waiting = append(g.Waiting, p)
		}
	}
	for _, controller := range w.succeeded[key] {
		if controllers[controller] {
			g.Done++
		}
	}
	return g
}

// GangKeys returns the keys of the PodGroups, and of those that pods name, in no order.
func (w *World) GangKeys() []string {
	out := make([]string, 0, len(w.groups))
	for key := range w.groups {
		out = append(out, key)
	}
	for key := range w.members {
		if w.groups[key] == nil {
			out = append(out, key)
		}
	}
	return out
}

// waits tells whether a pod has no node: none has been written into it, or it has been displaced from that.
func (w *World) waits(p *Pod) bool {
	return p.Node == nil && (p.Object.Spec.NodeName == "" || w.byName[p.Object.Spec.NodeName] != nil)
}

// addGroup takes in a PodGroup.
func (w *World) addGroup(g *schedv1alpha1.PodGroup) { w.groups[g.Namespace+"/"+g.Name] = g }

// hasSucceeded notes a pod that has succeeded.
func (w *World) hasSucceeded(pod *corev1.Pod) {
	key, over := GangOf(pod), controllerOf(pod)
	if key != "" && over != nil {
		w.succeeded[key] = append(w.succeeded[key], over.UID)
	}
}
