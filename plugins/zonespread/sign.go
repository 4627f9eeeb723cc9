package zonespread

import (
	"context"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	fwk "k8s.io/kube-scheduler/framework"
)

var _ fwk.SignPlugin = (*ZoneSpread)(nil)

// hardSignerName is the key of what the plugin adds to a pod's signature.
const hardSignerName = Name + ".HardConstraints"

// SignPod signs the pods that the plugin gives no scores to, so that the framework may batch them (KEP-5598): the pods that
// it does not spread, and those whose constraints are all hard. PodTopologySpread signs none of the latter.
//
// Of a batch, the framework offers a pod the node that was the next best for the pod before it, and has it filtered anew
// with what PreFilter counted for this pod. So a hard constraint holds in a batch as anywhere else. Scores are those of the first
// pod, but for the node just taken, where those for a soft constraint or a policy change in a whole domain: such pods stay out.
func (pl *ZoneSpread) SignPod(_ context.Context, pod *v1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	own := pod.Spec.TopologySpreadConstraints
	if len(own) == 0 && len(pl.defaultConstraints) > 0 {
		return nil, fwk.NewStatus(fwk.Unschedulable, "pods with default topology constraints are not signable")
	}
	if slices.ContainsFunc(own, func(c v1.TopologySpreadConstraint) bool { return c.WhenUnsatisfiable != v1.DoNotSchedule }) {
		return nil, fwk.NewStatus(fwk.Unschedulable, "pods with soft topology constraints are not signable")
	}
	if pl.policies.Selects(pod) {
		return nil, fwk.NewStatus(fwk.Unschedulable, "pods with zone spread policies are not signable")
	}
	if len(own) == 0 {
		return nil, nil
	}
	constraints, err := pl.constraintsOf(pod, v1.DoNotSchedule)
	if err != nil {
		return nil, fwk.AsStatus(err)
	}
	return []fwk.SignFragment{{Key: hardSignerName, Value: signatureOf(pod, constraints)}}, nil
}

// signatureOf tells apart the pods that PreFilter and Filter may treat differently. Other labels than those that the selectors
// ask for do not matter: the pods of a StatefulSet, which have their names as a label, are alike to this plugin.
func signatureOf(pod *v1.Pod, constraints []constraint) string {
	var w keyWriter
	w.text(pod.Namespace)
	for i := range constraints {
		c := &constraints[i]
		w.WriteByte('|')
		w.text(c.topologyKey)
		w.text(strconv.Itoa(int(c.maxSkew)))
		w.text(strconv.Itoa(int(c.minDomains)))
		w.text(c.selector.String())
		// This also tells the selector of all pods from the one of none, which both have no text.
		w.text(strconv.FormatBool(c.selector.Matches(labels.Set(pod.Labels))))
		if c.eligibility != nil {
			w.text(c.eligibility.Key())
		}
	}
	return w.String()
}
