package policy

import (
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/apis/v1alpha1"
)

// Owner is a top-level workload of the policy's namespace: a Deployment rather than its ReplicaSets, which start
// small and end empty; a StatefulSet; a Job; a ReplicaSet or ReplicationController without a controller.
type Owner struct {
	UID types.UID
	// TemplateLabels are the labels of its pod template.
	TemplateLabels labels.Set
	// OwnsSelected is true when a live pod that the policy selects belongs to it. It makes an owner count
	// whose template lacks the labels that the policy selects by, since controllers add some of their own.
	OwnsSelected bool
	// Replicas is how many pods it wants: spec.replicas; of a Job the smaller of parallelism and the
	// completions that are still missing.
	Replicas int64
	// ReplaceFirst is true for a Deployment whose rolling update takes no old pod away before a new one is
	// ready: strategy RollingUpdate with a maxUnavailable that comes to 0.
	ReplaceFirst bool
}

// Demand is what there is to know about how many pods are wanted. Which part counts is spec.replicas.
type Demand struct {
	// Owners are the workloads of the namespace; those that are not the policy's are passed over.
	Owners []Owner
	// Unowned is how many live pods that the policy selects belong to none of Owners. Each counts as one.
	Unowned int64
	// Matching is how many live pods the policy selects, of all revisions, waiting ones included.
	Matching int64
}

// Replicas returns the number R that percentages and quorumSafe refer to, for an incoming pod with these labels,
// or with nil labels for the policy as a whole. It is at least 1 for a pod.
//
// With spec.replicas Owner it is the sum over the owners that the policy selects, less those whose template
// says that their pods and the incoming pod do not count for each other (matchLabelKeys). It never follows the
// pods counted so far: a percentage of a growing count refuses or misplaces the first pods.
//
// With Matching it counts the pods of all revisions. Counting one revision would stall a rollout: the new revision
// of 6 replicas under quorumSafe passes through 4, of which 3 zones may hold one each.
func (p *Policy) Replicas(d Demand, podLabels labels.Set) int64 {
	var r int64
	switch {
	case p.replicas.number > 0:
		r = p.replicas.number
	case p.replicas.matching:
		r = d.Matching
	default:
		r = d.Unowned
		for i := range d.Owners {
			if p.owns(&d.Owners[i], podLabels) {
				r += max(0, d.Owners[i].Replicas)
			}
		}
	}
	if podLabels != nil {
		r = max(r, 1)
	}
	return min(r, maxReplicas)
}

// maxReplicas bounds what outside numbers can do to the formulas; no cluster comes near it.
const maxReplicas = int64(1) << 40

func (p *Policy) owns(o *Owner, podLabels labels.Set) bool {
	if !o.OwnsSelected && !p.selector.Matches(o.TemplateLabels) {
		return false
	}
	if podLabels == nil {
		return true
	}
	for _, key := range p.matchLabelKeys {
		want, ok := podLabels[key]
		if !ok {
			continue
		}
		// A key that the template lacks, such as pod-template-hash, is set per revision by the controller.
		if have, ok := o.TemplateLabels[key]; ok && have != want {
			return false
		}
	}
	return true
}

// replacesFirst tells whether some owner needs room for a pod more than its replicas during a rollout, while the
// policy counts old and new revisions together.
func (p *Policy) replacesFirst(d Demand) bool {
	if slices.Contains(p.matchLabelKeys, v1alpha1.DefaultPodTemplateHash) {
		return false
	}
	for i := range d.Owners {
		if d.Owners[i].ReplaceFirst && d.Owners[i].Replicas > 0 && p.owns(&d.Owners[i], nil) {
			return true
		}
	}
	return false
}
