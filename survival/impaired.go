package survival

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/internal/crd"
	"zonewise.dev/internal/pods"
)

// This file says what is left when a zone is cut off but not gone: its pods stay, and get no traffic. Nothing is
// replayed, since nothing is rescheduled: it follows from where ready pods are.

// Impaired is a cluster for which that is asked.
type Impaired struct {
	zones  []string          // sorted
	zoneOf map[string]string // by node
	pods   map[string][]*v1.Pod
	// controllers are by namespace, kind and name: those that say how many pods they want, and the ReplicaSets of
	// Deployments.
	controllers map[controllerKey]client.Object
}

type controllerKey struct{ namespace, kind, name string }

// NewImpaired reads a cluster. The objects are not modified.
func NewImpaired(objects []client.Object) *Impaired {
	m := &Impaired{
		zoneOf: map[string]string{}, pods: map[string][]*v1.Pod{}, controllers: map[controllerKey]client.Object{},
	}
	zones := map[string]bool{}
	for _, obj := range objects {
		switch o := obj.(type) {
		case *v1.Node:
			zone := o.Labels[v1.LabelTopologyZone]
			m.zoneOf[o.Name] = zone
			if zone != "" {
				zones[zone] = true
			}
		case *v1.Pod:
			if live(o) {
				m.pods[o.Namespace] = append(m.pods[o.Namespace], o)
			}
		case *appsv1.Deployment:
			m.controllers[controllerKey{o.Namespace, "Deployment", o.Name}] = o
		case *appsv1.ReplicaSet:
			m.controllers[controllerKey{o.Namespace, "ReplicaSet", o.Name}] = o
		case *appsv1.StatefulSet:
			m.controllers[controllerKey{o.Namespace, "StatefulSet", o.Name}] = o
		case *v1.ReplicationController:
			m.controllers[controllerKey{o.Namespace, "ReplicationController", o.Name}] = o
		}
	}
	m.zones = slices.Sorted(maps.Keys(zones))
	return m
}

// workload is the pods of one controller.
type workload struct {
	controllerKey
	replicas int // that it wants
	pods     []*v1.Pod
}

// topController returns the key of the object at the top of a pod's controllers, and how many pods that wants; known is
// false if it does not say.
func (m *Impaired) topController(pod *v1.Pod) (key controllerKey, replicas int, known bool) {
	owner := metav1.GetControllerOf(pod)
	if owner == nil {
		return controllerKey{pod.Namespace, "Pod", pod.Name}, 1, true
	}
	key = controllerKey{pod.Namespace, owner.Kind, owner.Name}
	obj := m.controllers[key]
	if set, ok := obj.(*appsv1.ReplicaSet); ok {
		if above := metav1.GetControllerOf(set); above != nil {
			key = controllerKey{pod.Namespace, above.Kind, above.Name}
			obj = m.controllers[key]
		}
	}
	var wanted *int32
	switch o := obj.(type) {
	case *appsv1.Deployment:
		wanted = o.Spec.Replicas
	case *appsv1.ReplicaSet:
		wanted = o.Spec.Replicas
	case *appsv1.StatefulSet:
		wanted = o.Spec.Replicas
	case *v1.ReplicationController:
		wanted = o.Spec.Replicas
	default:
		return key, 0, false
	}
	return key, int(ptr.Deref(wanted, 1)), true
}

// workloads returns the protected workloads in the order of their names. One that does not say how many pods it wants
// wants those that are there.
func (m *Impaired) workloads(asked *v1alpha1.ZoneSurvival, protects func(*v1.Pod) bool) []*workload {
	found := map[controllerKey]*workload{}
	namespaces := map[string]bool{}
	for i := range asked.Spec.Workloads {
		namespaces[asked.Spec.Workloads[i].Namespace] = true
	}
	for namespace := range namespaces {
		for _, pod := range m.pods[namespace] {
			if !protects(pod) {
				continue
			}
			key, replicas, known := m.topController(pod)
			w := found[key]
			if w == nil {
				w = &workload{controllerKey: key}
				found[key] = w
			}
			w.pods = append(w.pods, pod)
			w.replicas = len(w.pods)
			if known {
				w.replicas = replicas
			}
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b *workload) int {
		return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.kind, b.kind), cmp.Compare(a.name, b.name))
	})
}

// readyOutside returns how many ready pods of a workload are in other zones than that.
func (m *Impaired) readyOutside(w *workload, zone string) int {
	n := 0
	for _, pod := range w.pods {
		if at, exists := m.zoneOf[pod.Spec.NodeName]; exists && at != zone && pods.Ready(pod) {
			n++
		}
	}
	return n
}

// Answer puts what is left of a ZoneSurvival's workloads into its status, and whether that is enough as a condition.
func (m *Impaired) Answer(asked *v1alpha1.ZoneSurvival, now metav1.Time, status *v1alpha1.ZoneSurvivalStatus) {
	protects, invalid := Protected(asked)
	status.Impaired = nil
	var workloads []*workload
	if invalid == nil {
		workloads = m.workloads(asked, protects)
		for _, zone := range m.zonesOf(asked) {
			if left := m.leastServingWorkload(workloads, zone, asked.Spec.Impaired); left != nil {
				status.Impaired = append(status.Impaired, *left)
			}
		}
	}
	if asked.Spec.Impaired == nil {
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ConditionServes)
		return
	}
	condition := servesCondition(status.Impaired, asked.Spec.Impaired, invalid)
	condition.ObservedGeneration, condition.LastTransitionTime, condition.Message = asked.Generation, now, crd.Shortened(condition.Message)
	meta.SetStatusCondition(&status.Conditions, condition)
}

// zonesOf returns the zones of spec.survive that there are: all, if it is about nodes.
func (m *Impaired) zonesOf(asked *v1alpha1.ZoneSurvival) []string {
	if len(asked.Spec.Survive.ZoneNames) == 0 {
		return m.zones
	}
	return slices.DeleteFunc(slices.Clone(m.zones), func(zone string) bool {
		return !slices.Contains(asked.Spec.Survive.ZoneNames, zone)
	})
}

// leastServingWorkload returns the workload of which least is left without a zone: of those below the bound if there
// are any, and then the smallest share.
func (m *Impaired) leastServingWorkload(
	workloads []*workload, zone string, bound *v1alpha1.SurvivalImpairment,
) *v1alpha1.SurvivalServing {
	var worst *v1alpha1.SurvivalServing
	for _, w := range workloads {
		if w.replicas == 0 {
			continue
		}
		left := &v1alpha1.SurvivalServing{
			Zone: zone, Namespace: w.namespace, Workload: w.kind + "/" + w.name, Ready: int64(m.readyOutside(w, zone)),
			Replicas: int64(w.replicas),
			Wanted:   int64(leastServing(bound, w.replicas)),
		}
		if worst == nil || isWorse(left, worst) {
			worst = left
		}
	}
	return worst
}

func isWorse(a, b *v1alpha1.SurvivalServing) bool {
	if tooFew := a.Ready < a.Wanted; tooFew != (b.Ready < b.Wanted) {
		return tooFew
	}
	return a.Ready*b.Replicas < b.Ready*a.Replicas
}

// leastServing is how many ready pods a workload of that size wants: as of a PodDisruptionBudget's minAvailable, a
// percentage is rounded up.
func leastServing(bound *v1alpha1.SurvivalImpairment, replicas int) int {
	if bound == nil {
		return 0
	}
	n, _ := intstr.GetScaledValueFromIntOrPercent(&bound.LeastServing, replicas, true) // the API server takes nothing else
	return n
}

// servesCondition says whether enough is left without any one zone.
func servesCondition(
	left []v1alpha1.SurvivalServing, bound *v1alpha1.SurvivalImpairment, invalid error,
) metav1.Condition {
	condition := unknownCondition(
		v1alpha1.ReasonNoPods, "spec.workloads select no pod, or no node has a zone that may be cut off",
	)
	if invalid != nil {
		condition = unknownCondition(v1alpha1.ReasonInvalid, invalid.Error())
	}
	var worst *v1alpha1.SurvivalServing
	for i := range left {
		l := &left[i]
		text := fmt.Sprintf(
			"without zone %s, %d of %d pods of %s in namespace %s are ready", l.Zone, l.Ready, l.Replicas, l.Workload,
			l.Namespace,
		)
		if l.Ready < l.Wanted {
			condition = metav1.Condition{
				Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonTooFewServing,
				Message: fmt.Sprintf(
					"%s, and spec.impaired.leastServing %s wants %d", text, bound.LeastServing.String(), l.Wanted,
				),
			}
			break
		}
		if worst == nil || isWorse(l, worst) {
			worst = l
			condition = metav1.Condition{
				Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonEnoughServing,
				Message: text + "; that is the least",
			}
		}
	}
	condition.Type = v1alpha1.ConditionServes
	return condition
}
