package serve

import (
	"cmp"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/zonespread/counted"
	"zonewise.dev/plugins/zonespread/counts"
	"zonewise.dev/plugins/zonespread/policy"
)

// ownerLimit is how old a pod is at most that waits until its controller is known. The watches of pods and of their
// controllers are not in step: after the API server was away they come back one by one.
const ownerLimit = 30 * time.Second

// Input has what one policy needs for one pod, besides the counts.
type Input struct {
	*Applied
	counted.Pods
	// Availability and Replicas are parts of a policy.Input.
	Availability policy.ZoneAvailability
	Replicas     int64
	// Excluded are the zones that the pod's volumes ruled out when it was last tried.
	Excluded map[string]bool
	// OwnerMissing is true if the pod's controller is of a known kind and should arrive any moment.
	OwnerMissing bool
	// HasRun: some zone refuses pods of the workload, so RecordFit must be called when a node passes.
	HasRun bool

	owner    types.UID // of the controller
	runs     types.UID // by what runs of the pod's workload are found, see policy.Zones
	workload types.UID // of the top-level workload; empty if it is not known
	changes  uint64    // of the entry, at this time
}

// Inputs returns the input of the policies that apply to a pod.
func (s *Policies) Inputs(pod *v1.Pod, applied []*Applied) []Input {
	owner := ownerOf(pod)
	workload, missing := s.cluster.workload(pod.Namespace, owner)
	missing = missing && s.clock.Now().Before(pod.CreationTimestamp.Add(ownerLimit))
	inputs := make([]Input, len(applied))
	for i, a := range applied {
		input := &inputs[i]
		*input = Input{
			Applied: a, owner: owner.uid, workload: workload.UID, runs: cmp.Or(workload.UID, owner.uid, a.UID()),
			OwnerMissing: missing && a.ByOwner() && a.ScalesCaps(),
		}
		s.addCurrent(input, pod, &workload)
		eligible := counts.EligibilityOf(pod, a.HonorsAffinity(), a.HonorsTaints(), s.comparisonOperators)
		input.Pods = counted.For(a.Policy, &workload, pod.Labels, eligible, input.Availability)
	}
	return inputs
}

// addCurrent adds what changes with time to an input.
func (s *Policies) addCurrent(in *Input, pod *v1.Pod, workload *policy.Workload) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// The entry may have a newer spec by now. This pod is still held to the spec that it was found with: the change
	// wakes it.
	e := in.entry
	now := s.clock.Now()
	in.Replicas, in.changes = in.Policy.Replicas(workload, e.matching.countWith(pod)), e.changes
	in.Availability, in.HasRun = e.zones.For(now, in.runs), e.zones.HasRun(in.runs)
	if w := s.waiting[pod.UID]; w != nil {
		in.Excluded = w.excluded[in.TopologyKey()]
	}
}

// RecordFit records that nodes of zones passed all filters for the pod of an input.
func (s *Policies) RecordFit(in *Input, zones ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, now, changed := in.entry, s.clock.Now(), false
	for _, zone := range zones {
		changed = e.zones.RecordFit(now, zone, in.runs) || changed
	}
	if changed && s.entries[in.UID()] == e { // else the policy is deleted by now
		s.factsChangedLocked(e)
	}
}

// Placed records that a pod has a node and no longer waits.
func (s *Policies) Placed(pod *v1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.waiting[pod.UID]; w != nil {
		s.forgetLocked(w)
	}
}
