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

	owner    types.UID // of the controller
	runs     types.UID // by what runs of the pod's workload are found, see policy.Zones
	workload types.UID // of the top-level workload; empty if it is not known
	changes  uint64    // of the entry, at the time asOf
	asOf     time.Time
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
		input.Pods = counted.For(a.Policy, &workload, pod.Labels, eligible)
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
	in.asOf, in.changes = s.clock.Now(), e.changes
	in.Replicas, in.Availability = in.Policy.Replicas(workload, e.matching.countWith(pod)), e.zones.For(in.asOf, in.runs)
	if w := s.waiting[pod.UID]; w != nil {
		in.Excluded = w.excluded[in.TopologyKey()]
	}
	for zone := range in.Excluded {
		if a := in.Availability[zone]; a != policy.Closed && a != policy.Absent {
			in.SetAvailability(zone, policy.Excluded)
		}
	}
}

// SetAvailability changes how a zone takes part for the pod.
func (in *Input) SetAvailability(zone string, a policy.Availability) {
	if in.Availability == nil {
		in.Availability = policy.ZoneAvailability{}
	}
	in.Availability[zone] = a
}

// Now is the time by which the input was made.
func (in *Input) Now() time.Time { return in.asOf }

// Bound records that the pod of an input was bound to a node.
func (s *Policies) Bound(pod *v1.Pod, in *Input, node string) {
	zone := s.zoneOf(in.TopologyKey(), node)
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.waiting[pod.UID]; w != nil {
		s.forgetLocked(w)
	}
	e := in.entry
	if changed := e.zones.RecordBind(s.clock.Now(), zone, in.runs); changed && s.entries[in.UID()] == e { // else it is deleted
		s.factsChangedLocked(e)
	}
}
