package zonespread

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/internal/upstream"
	"zonewise.dev/plugins/zonespread/counts"
)

var _ fwk.EnqueueExtensions = (*ZoneSpread)(nil)

// EventsToRegister returns the events that may let a pod in that hard constraints have kept out: pods
// that start or stop to count, the pod's own labels and tolerations, and nodes whose domains or
// eligibility change.
func (pl *ZoneSpread) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return []fwk.ClusterEventWithHint{
		upstream.AssignedPodEvent(fwk.Add|fwk.UpdatePodLabel|fwk.Delete, pl.isSchedulableAfterAssignedPodChange),
		upstream.TargetPodEvent(fwk.UpdatePodToleration|fwk.UpdatePodLabel, pl.isSchedulableAfterTargetPodChange),
		{
			Event: fwk.ClusterEvent{
				Resource:   fwk.Node,
				ActionType: fwk.Add | fwk.Delete | fwk.UpdateNodeLabel | fwk.UpdateNodeTaint,
			},
			QueueingHintFn: pl.isSchedulableAfterNodeChange,
		},
	}, nil
}

// isSchedulableAfterAssignedPodChange queues the pod when a pod of its namespace that is on a node, or
// nominated to one, starts or stops to match one of its selectors.
func (pl *ZoneSpread) isSchedulableAfterAssignedPodChange(
	logger klog.Logger, pod *v1.Pod, oldObj, newObj any,
) (fwk.QueueingHint, error) {
	before, after, err := eventObjects[*v1.Pod](oldObj, newObj)
	if err != nil {
		return fwk.Queue, err
	}
	for _, changed := range []*v1.Pod{before, after} {
		if changed == nil {
			continue
		}
		if changed.Namespace != pod.Namespace ||
			(changed.Spec.NodeName == "" && changed.Status.NominatedNodeName == "") {
			logger.V(5).Info("Changed pod is on no node or in another namespace, so it does not count", "pod",
				klog.KObj(pod), "changedPod", klog.KObj(changed))
			return fwk.QueueSkip, nil
		}
	}
	if pl.countedByPolicies(pod, before, after) {
		logger.V(5).Info("A pod that a policy counts came or went", "pod", klog.KObj(pod), "changedPod",
			klog.KObj(cmp.Or(after, before)))
		return fwk.Queue, nil
	}
	constraints, err := pl.constraintsOf(pod, v1.DoNotSchedule)
	if err != nil {
		return fwk.Queue, err
	}
	if before != nil && after != nil {
		return hintForRelabel(logger, pod, before, after, constraints), nil
	}
	changed := cmp.Or(after, before)
	for i := range constraints {
		if constraints[i].selector.Matches(labels.Set(changed.Labels)) {
			logger.V(5).Info("A matching pod came or went", "pod", klog.KObj(pod), "changedPod", klog.KObj(changed),
				"topologyKey", constraints[i].topologyKey)
			return fwk.Queue, nil
		}
	}
	return fwk.QueueSkip, nil
}

// countedByPolicies reports whether a hard policy of the pod counts another one before or after its change.
func (pl *ZoneSpread) countedByPolicies(pod, before, after *v1.Pod) bool {
	for _, a := range pl.shared.policies.For(pod) {
		if !a.Hard() {
			continue
		}
		selector := a.CountedFor(pod.Labels)
		for _, changed := range []*v1.Pod{before, after} {
			if changed != nil && selector.Matches(labels.Set(changed.Labels)) {
				return true
			}
		}
	}
	return false
}

// isSchedulableAfterTargetPodChange queues the pod when its own change makes it match other selectors
// or, where taints are honored, tolerate other nodes.
func (pl *ZoneSpread) isSchedulableAfterTargetPodChange(
	logger klog.Logger, pod *v1.Pod, oldObj, newObj any,
) (fwk.QueueingHint, error) {
	before, after, err := eventObjects[*v1.Pod](oldObj, newObj)
	if err != nil {
		return fwk.Queue, err
	}
	constraints, err := pl.constraintsOf(pod, v1.DoNotSchedule)
	if err != nil {
		return fwk.Queue, err
	}
	if pl.shared.policies.SelectsHard(before) || pl.shared.policies.SelectsHard(after) {
		return fwk.Queue, nil // its new tolerations or labels may change what the policy refuses
	}
	if !equality.Semantic.DeepEqual(before.Spec.Tolerations, after.Spec.Tolerations) {
		if slices.ContainsFunc(constraints, func(c constraint) bool { return c.honorTaints }) {
			logger.V(5).Info("The pod has new tolerations, so more nodes may be eligible", "pod", klog.KObj(pod))
			return fwk.Queue, nil
		}
	}
	return hintForRelabel(logger, pod, before, after, constraints), nil
}

// hintForRelabel is Queue when the change of labels makes a pod match, or no longer match, a selector.
func hintForRelabel(logger klog.Logger, pod, before, after *v1.Pod, constraints []constraint) fwk.QueueingHint {
	for i := range constraints {
		selector := constraints[i].selector
		if selector.Matches(labels.Set(before.Labels)) != selector.Matches(labels.Set(after.Labels)) {
			logger.V(5).Info("New labels change what a pod counts for", "pod", klog.KObj(pod), "changedPod",
				klog.KObj(after), "topologyKey", constraints[i].topologyKey)
			return fwk.Queue
		}
	}
	return fwk.QueueSkip
}

// isSchedulableAfterNodeChange queues the pod when a node that has all of its topology keys comes, goes,
// changes its domain or its taints.
func (pl *ZoneSpread) isSchedulableAfterNodeChange(
	logger klog.Logger, pod *v1.Pod, oldObj, newObj any,
) (fwk.QueueingHint, error) {
	before, after, err := eventObjects[*v1.Node](oldObj, newObj)
	if err != nil {
		return fwk.Queue, err
	}
	if pl.changesZones(pod, before, after) {
		logger.V(5).Info("The zones of a policy changed", "pod", klog.KObj(pod))
		return fwk.Queue, nil
	}
	constraints, err := pl.constraintsOf(pod, v1.DoNotSchedule)
	if err != nil {
		return fwk.Queue, err
	}
	if len(constraints) == 0 && pl.shared.policies.SelectsHard(pod) {
		return fwk.QueueSkip, nil // its policies alone refused it
	}
	hadDomain := before != nil && hasAllKeys(before.Labels, constraints)
	hasDomain := after != nil && hasAllKeys(after.Labels, constraints)
	changed := hadDomain != hasDomain
	if hadDomain && hasDomain {
		changed = movedDomain(before, after, constraints) ||
			changedEligibility(before, after, constraints) ||
			!equality.Semantic.DeepEqual(before.Spec.Taints, after.Spec.Taints)
	}
	if !changed {
		return fwk.QueueSkip, nil
	}
	logger.V(5).Info("A node's domain or eligibility changed", "pod", klog.KObj(pod), "node",
		klog.KObj(cmp.Or(after, before)))
	return fwk.Queue, nil
}

// changesZones reports whether the change of a node may change the zones for a policy of the pod, or whether the node
// has one.
func (pl *ZoneSpread) changesZones(pod *v1.Pod, before, after *v1.Node) bool {
	for _, a := range pl.shared.policies.For(pod) {
		if !a.Hard() {
			continue
		}
		eligible := counts.EligibilityOf(pod, a.HonorsAffinity(), a.HonorsTaints(), pl.features.comparisonOperators)
		// In a zone that is closing the taints of the node lifecycle make no difference.
		for _, eligible := range []counts.Eligibility{eligible, counts.IgnoringLifecycle(eligible)} {
			zone := func(node *v1.Node) (name string, takesPart bool) {
				if node == nil {
					return "", false
				}
				name, labelled := node.Labels[a.TopologyKey()]
				return name, labelled && counts.Admits(eligible, node)
			}
			zoneBefore, tookPart := zone(before)
			zoneAfter, takesPart := zone(after)
			if tookPart != takesPart || takesPart && zoneBefore != zoneAfter {
				return true
			}
		}
	}
	return false
}

// movedDomain reports whether two states of a node differ in the value of a topology key.
func movedDomain(before, after *v1.Node, constraints []constraint) bool {
	return slices.ContainsFunc(constraints,
		func(c constraint) bool { return before.Labels[c.topologyKey] != after.Labels[c.topologyKey] })
}

// changedEligibility reports whether other labels made a node start or stop to take part in a constraint:
// a domain that was empty may have left the minimum with it. PodTopologySpread overlooks this, and the pod
// waits for another event.
func changedEligibility(before, after *v1.Node, constraints []constraint) bool {
	return slices.ContainsFunc(constraints, func(c constraint) bool {
		return counts.Admits(c.eligibility, before) != counts.Admits(c.eligibility, after)
	})
}

// eventObjects returns the objects of an event in their type; the one that the event lacks is nil.
func eventObjects[T any](oldObj, newObj any) (before, after T, err error) {
	if tombstone, ok := oldObj.(cache.DeletedFinalStateUnknown); ok {
		oldObj = tombstone.Obj
	}
	before, err = objectOf[T](oldObj)
	if err != nil {
		return before, after, err
	}
	after, err = objectOf[T](newObj)
	return before, after, err
}

func objectOf[T any](obj any) (object T, err error) {
	if obj == nil {
		return object, nil
	}
	object, ok := obj.(T)
	if !ok {
		return object, fmt.Errorf("queueing hint: want a %T, got a %T", object, obj)
	}
	return object, nil
}
