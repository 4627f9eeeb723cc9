package survival

import (
	"cmp"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/internal/pods"
)

// Fingerprint returns a digest of what decides where pods go: the nodes and whether they are usable, where pods are and
// what they ask for, policies, reservations and what they hold, budgets, volumes and devices. Heartbeats, the readiness
// of pods, ZoneSurvivals and ZoneRebalances do not change it, nor does the order of the objects.
func Fingerprint(objects []client.Object) string {
	return digestOf(objects, func(obj client.Object) []string {
		switch obj.(type) {
		case *v1alpha1.ZoneSurvival, *v1alpha1.ZoneRebalance:
			return nil
		}
		return decisiveState(obj)
	})
}

// steadyDigest is the fingerprint of what has to stay the same for an answer to follow. Pods and their controllers, and
// what the scheduler counts of them, may change.
func steadyDigest(objects []client.Object) string {
	return digestOf(objects, func(obj client.Object) []string {
		switch o := obj.(type) {
		case *v1alpha1.ZoneSurvival, *v1alpha1.ZoneRebalance, *v1.Pod, *appsv1.Deployment, *appsv1.ReplicaSet,
			*appsv1.StatefulSet, *appsv1.DaemonSet, *batchv1.Job, *v1.ReplicationController:
			return nil
		case *policyv1.PodDisruptionBudget: // each copy counts for itself
			return []string{strconv.FormatInt(o.Generation, 10)}
		case *v1alpha1.ZoneSpreadPolicy: // and so does the policy
			out := []string{strconv.FormatInt(o.Generation, 10)}
			for i := range o.Status.Zones {
				z := &o.Status.Zones[i]
				out = append(out, z.Name, string(z.State), fmt.Sprint(z.RecoveringSince, z.Since, len(z.Full)))
			}
			return out
		}
		return decisiveState(obj)
	})
}

// digestOf returns a digest of the states of objects, whatever their order. Those without a state are left out.
func digestOf(objects []client.Object, stateOf func(obj client.Object) []string) string {
	var sum uint64
	for _, obj := range objects {
		state := stateOf(obj)
		if state == nil {
			continue
		}
		h := fnv.New64a()
		writeWords(h, fmt.Sprintf("%T", obj), obj.GetNamespace(), obj.GetName(), string(obj.GetUID()))
		writeWords(h, state...)
		sum += h.Sum64()
	}
	return strconv.FormatUint(sum, 16)
}

func writeWords(w io.Writer, words ...string) {
	for _, word := range words {
		_, _ = io.WriteString(w, word)
		_, _ = w.Write([]byte{0})
	}
}

// decisiveState returns what of an object may decide an answer. The generation stands for the spec, where the API
// server counts it.
func decisiveState(obj client.Object) []string {
	return append(stateOfKind(obj), decisiveAnnotations(obj)...)
}

// decisiveAnnotations are those of the pack, and what controllers note on ReplicaSets: generations do not count them.
func decisiveAnnotations(obj client.Object) []string {
	var out []string
	for key, value := range obj.GetAnnotations() {
		if strings.HasPrefix(key, v1alpha1.GroupName+"/") || strings.HasSuffix(key, "/desired-replicas") {
			out = append(out, key+"="+value)
		}
	}
	slices.Sort(out)
	return out
}

// stateOfKind is what decides of a kind's own fields.
func stateOfKind(obj client.Object) []string {
	generation := strconv.FormatInt(obj.GetGeneration(), 10)
	switch o := obj.(type) {
	case *v1.Pod:
		out := append(
			sortedPairs(o.Labels), generation, o.Spec.NodeName, strconv.FormatBool(live(o)),
			strconv.FormatBool(ended(o)),
		)
		if pods.Condition(o, v1.PodResizePending) != nil || pods.Condition(o, v1.PodResizeInProgress) != nil {
			requests, _ := json.Marshal(resource.PodRequests(o, resource.PodResourcesOptions{UseStatusResources: true})) // plain data
			out = append(out, string(requests))
		}
		return out
	case *v1.Node:
		taints, _ := json.Marshal(o.Spec.Taints) // plain data
		out := append(sortedPairs(o.Labels), strconv.FormatBool(usable(o)), string(taints))
		for _, name := range slices.Sorted(maps.Keys(o.Status.Allocatable)) {
			quantity := o.Status.Allocatable[name]
			out = append(out, string(name), quantity.String())
		}
		return append(out, o.Status.DeclaredFeatures...)
	case *batchv1.Job:
		out := []string{generation, strconv.Itoa(int(o.Status.Failed))}
		for _, c := range o.Status.Conditions {
			out = append(out, string(c.Type)+"="+string(c.Status))
		}
		return out
	case *policyv1.PodDisruptionBudget:
		return []string{generation, strconv.Itoa(int(o.Status.DisruptionsAllowed))}
	case *v1alpha1.ZoneSpreadPolicy:
		said := o.Status
		said.Conditions = decisiveConditions(said.Conditions)
		status, _ := json.Marshal(said)
		return []string{generation, string(status)}
	case *v1alpha1.ZoneReservation:
		held := o.Status
		held.LastUpdateTime, held.Buy, held.Conditions = metav1.MicroTime{}, nil, decisiveConditions(held.Conditions)
		status, _ := json.Marshal(held)
		return []string{generation, string(status)}
	}
	if obj.GetGeneration() > 0 {
		return []string{generation}
	}
	return []string{cmp.Or(obj.GetResourceVersion(), generation)}
}

// decisiveConditions returns the conditions by which a scheduler may decide.
func decisiveConditions(conditions []metav1.Condition) []metav1.Condition {
	return slices.DeleteFunc(slices.Clone(conditions), func(c metav1.Condition) bool {
		return c.Type == v1alpha1.ConditionBuying || c.Type == v1alpha1.ConditionScaleDownOrdered
	})
}

func sortedPairs(of map[string]string) []string {
	out := make([]string, 0, 2*len(of)+4)
	for _, key := range slices.Sorted(maps.Keys(of)) {
		out = append(out, key, of[key])
	}
	return out
}
