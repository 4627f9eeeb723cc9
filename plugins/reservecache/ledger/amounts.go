package ledger

import v1 "k8s.io/api/core/v1"

// ResourcesOf converts a list of the API. Resources that kube-scheduler does not account for, such as unprefixed names
// that Kubernetes does not define, are left out.
func ResourcesOf(list v1.ResourceList) Resources { return resourcesOf(list) }

// Accounted reports whether kube-scheduler accounts for a resource of that name.
func Accounted(name v1.ResourceName) bool {
	switch name {
	case v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage, v1.ResourcePods:
		return true
	}
	return isScalar(name)
}

// Add adds b, sign times. It changes r's map, if r has one.
func (r *Resources) Add(b *Resources, sign int64) { r.add(b, sign) }

// Exceeds returns a resource that is more than 0 in r and of which r has more than limit, or nothing.
func (r *Resources) Exceeds(limit *Resources) v1.ResourceName { return exceeds(r, r, limit) }
