package ledger

import (
	"iter"
	"maps"
	"math"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/component-helpers/resource"

	"zonewise.dev/internal/amount"
)

// Resources is an amount of each resource of a node, or a demand for it.
type Resources struct {
	// MilliCPU is in thousandths of a CPU.
	MilliCPU int64
	// Memory is in bytes.
	Memory int64
	// EphemeralStorage is in bytes.
	EphemeralStorage int64
	// Pods is how many pods a node admits or, of requested resources, how many it has.
	Pods int64
	// Scalar holds extended resources, huge pages and attachable volumes, in units of their own. A
	// resource that is absent counts as 0.
	Scalar map[v1.ResourceName]int64
}

// Add adds b, times times. It changes r's map, if r has one.
func (r *Resources) Add(b *Resources, times int64) {
	r.MilliCPU += times * b.MilliCPU
	r.Memory += times * b.Memory
	r.EphemeralStorage += times * b.EphemeralStorage
	r.Pods += times * b.Pods
	for name, amount := range b.Scalar {
		r.addScalar(name, times*amount)
	}
}

// SetMax makes r no less than b, of each resource.
func (r *Resources) SetMax(b *Resources) {
	r.MilliCPU = max(r.MilliCPU, b.MilliCPU)
	r.Memory = max(r.Memory, b.Memory)
	r.EphemeralStorage = max(r.EphemeralStorage, b.EphemeralStorage)
	r.Pods = max(r.Pods, b.Pods)
	for name, amount := range b.Scalar {
		if amount > r.Scalar[name] {
			r.addScalar(name, amount-r.Scalar[name])
		}
	}
}

// Positive returns the part of which there is more than nothing. It shares nothing with r.
func (r *Resources) Positive() Resources {
	p := Resources{
		MilliCPU: max(0, r.MilliCPU), Memory: max(0, r.Memory), EphemeralStorage: max(0, r.EphemeralStorage), Pods: max(0, r.Pods),
	}
	for name, amount := range r.Scalar {
		if amount > 0 {
			p.addScalar(name, amount)
		}
	}
	return p
}

// Minus returns what is left of r without b. It shares nothing with the two.
func (r *Resources) Minus(b *Resources) Resources {
	left := r.Clone()
	left.Add(b, -1)
	return left
}

// Beyond returns the part of r that is more than b, of each resource. It shares nothing with the two.
func (r *Resources) Beyond(b *Resources) Resources {
	left := r.Minus(b)
	return left.Positive()
}

// Times returns n times r. It shares nothing with r.
func (r *Resources) Times(n int64) Resources {
	var product Resources
	product.Add(r, n)
	return product
}

// IsZero reports whether there is nothing of any resource.
func (r *Resources) IsZero() bool { return r.Equal(&Resources{}) }

// addScalar adds to one scalar resource and drops it at 0, so that equal amounts have equal maps.
func (r *Resources) addScalar(name v1.ResourceName, amount int64) {
	amount += r.Scalar[name]
	if amount == 0 {
		delete(r.Scalar, name)
		return
	}
	if r.Scalar == nil {
		r.Scalar = map[v1.ResourceName]int64{}
	}
	r.Scalar[name] = amount
}

// Equal reports whether the amounts of all resources are the same.
func (r *Resources) Equal(b *Resources) bool {
	if r.MilliCPU != b.MilliCPU || r.Memory != b.Memory || r.EphemeralStorage != b.EphemeralStorage || r.Pods != b.Pods {
		return false
	}
	for name, amount := range r.Scalar {
		if b.Scalar[name] != amount {
			return false
		}
	}
	for name, amount := range b.Scalar {
		if r.Scalar[name] != amount {
			return false
		}
	}
	return true
}

// Clone returns a copy that shares nothing with r.
func (r *Resources) Clone() Resources {
	c := *r
	c.Scalar = maps.Clone(r.Scalar)
	return c
}

// Amount returns how much there is of one resource.
func (r *Resources) Amount(name v1.ResourceName) int64 {
	switch name {
	case v1.ResourceCPU:
		return r.MilliCPU
	case v1.ResourceMemory:
		return r.Memory
	case v1.ResourceEphemeralStorage:
		return r.EphemeralStorage
	case v1.ResourcePods:
		return r.Pods
	default:
		return r.Scalar[name]
	}
}

// Put sets how much there is of one resource. It changes r's map, if r has one.
func (r *Resources) Put(name v1.ResourceName, amount int64) {
	switch name {
	case v1.ResourceCPU:
		r.MilliCPU = amount
	case v1.ResourceMemory:
		r.Memory = amount
	case v1.ResourceEphemeralStorage:
		r.EphemeralStorage = amount
	case v1.ResourcePods:
		r.Pods = amount
	default:
		r.addScalar(name, amount-r.Scalar[name])
	}
}

// Slots returns how many slots of a size there is room for: 0 where it names a resource of which there is
// less than nothing. A size that names no resource has room without end, which is [math.MaxInt64].
func (r *Resources) Slots(size *Resources) int64 {
	n := int64(math.MaxInt64)
	for name := range size.Named() {
		n = min(n, max(0, r.Amount(name))/size.Amount(name))
	}
	return n
}

// Covering returns how many slots of a size it takes to have as much as r of each resource that both name.
func (r *Resources) Covering(size *Resources) int {
	n := int64(0)
	for name := range size.Named() {
		slot := size.Amount(name)
		n = max(n, (r.Amount(name)+slot-1)/slot)
	}
	return int(n)
}

// Exceeds returns a resource that is more than 0 in r and of which r has more than limit, or nothing.
func (r *Resources) Exceeds(limit *Resources) v1.ResourceName {
	switch {
	case r.Pods > 0 && r.Pods > limit.Pods:
		return v1.ResourcePods
	case r.MilliCPU > 0 && r.MilliCPU > limit.MilliCPU:
		return v1.ResourceCPU
	case r.Memory > 0 && r.Memory > limit.Memory:
		return v1.ResourceMemory
	case r.EphemeralStorage > 0 && r.EphemeralStorage > limit.EphemeralStorage:
		return v1.ResourceEphemeralStorage
	}
	lacks := v1.ResourceName("")
	for name, amount := range r.Scalar {
		// The first by name, so that the answer does not depend on the order of a map.
		if amount > 0 && amount > limit.Scalar[name] && (lacks == "" || name < lacks) {
			lacks = name
		}
	}
	return lacks
}

// copyTo overwrites into with r and keeps into's map, so that refreshing a snapshot does not allocate.
func (r *Resources) copyTo(into *Resources) {
	scalar := into.Scalar
	*into = *r
	if len(r.Scalar) == 0 && len(scalar) == 0 {
		into.Scalar = scalar
		return
	}
	clear(scalar)
	if scalar == nil {
		scalar = make(map[v1.ResourceName]int64, len(r.Scalar))
	}
	maps.Copy(scalar, r.Scalar)
	into.Scalar = scalar
}

// ResourcesOf converts a list of the API. Resources that the scheduler does not account for, such as
// unprefixed names that Kubernetes does not define, are left out, as kube-scheduler's NodeInfo does.
func ResourcesOf(list v1.ResourceList) Resources {
	var r Resources
	for name, quantity := range list {
		switch name {
		case v1.ResourceCPU:
			r.MilliCPU = quantity.MilliValue()
		case v1.ResourceMemory:
			r.Memory = quantity.Value()
		case v1.ResourceEphemeralStorage:
			r.EphemeralStorage = quantity.Value()
		case v1.ResourcePods:
			r.Pods = quantity.Value()
		default:
			if isScalar(name) {
				r.addScalar(name, quantity.Value())
			}
		}
	}
	return r
}

// List converts r for the API, places for pods among it. Resources of which there is nothing are left out.
func (r *Resources) List() v1.ResourceList {
	list := v1.ResourceList{}
	for name := range r.Named() {
		list[name] = *amount.Quantity(name, r.Amount(name))
	}
	return list
}

// Accounted reports whether kube-scheduler accounts for a resource of that name.
func Accounted(name v1.ResourceName) bool {
	switch name {
	case v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage, v1.ResourcePods:
		return true
	}
	return isScalar(name)
}

// isScalar reports whether kube-scheduler accounts for a resource by its name alone: huge pages,
// attachable volumes, names in the kubernetes.io domain, and extended resources, which are qualified
// names of any other domain that quota can name too.
func isScalar(name v1.ResourceName) bool {
	s := string(name)
	switch {
	case strings.HasPrefix(s, v1.ResourceHugePagesPrefix),
		strings.HasPrefix(s, v1.ResourceAttachableVolumesPrefix),
		strings.Contains(s, v1.ResourceDefaultNamespacePrefix):
		return true
	case !strings.Contains(s, "/"), strings.HasPrefix(s, v1.DefaultResourceRequestsPrefix):
		return false
	}
	return len(validation.IsQualifiedName(v1.DefaultResourceRequestsPrefix+s)) == 0
}

// podRequests returns what a pod takes from its node: the sum over containers and sidecars or the
// largest init container, pod-level requests in their place where given, the pod's overhead, what an
// in-place resize has already been granted, and one pod.
//
// The rules are those of k8s.io/component-helpers/resource, which kube-scheduler uses. It adds up several lists, also
// where there is one: most pods have one container and are not resized, and their requests are in its spec.
func podRequests(pod *v1.Pod, opts resource.PodResourcesOptions) Resources {
	var list v1.ResourceList
	if hasOneList(pod) {
		list = pod.Spec.Containers[0].Resources.Requests
	} else {
		list = resource.PodRequests(pod, opts)
	}
	r := ResourcesOf(list)
	r.Pods = 1
	return r
}

// hasOneList reports whether the spec of its one container alone says what a pod requests, by any options.
func hasOneList(pod *v1.Pod) bool {
	spec, status := &pod.Spec, &pod.Status
	return len(spec.Containers) == 1 && len(spec.InitContainers) == 0 && spec.Resources == nil && len(spec.Overhead) == 0 &&
		len(status.ContainerStatuses) == 0 && len(status.InitContainerStatuses) == 0 && status.Resources == nil &&
		len(status.NodeAllocatableResourceClaimStatuses) == 0 &&
		!slices.ContainsFunc(status.Conditions, func(c v1.PodCondition) bool { return c.Type == v1.PodResizePending })
}

// Named yields the resources of which there is more than nothing.
func (r *Resources) Named() iter.Seq[v1.ResourceName] {
	return func(yield func(v1.ResourceName) bool) {
		for _, name := range [...]v1.ResourceName{v1.ResourcePods, v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage} {
			if r.Amount(name) > 0 && !yield(name) {
				return
			}
		}
		for name, amount := range r.Scalar {
			if amount > 0 && !yield(name) {
				return
			}
		}
	}
}

// Negative reports whether there is less than nothing of a resource that named names.
func (r *Resources) Negative(named *Resources) bool {
	for name := range named.Named() {
		if r.Amount(name) < 0 {
			return true
		}
	}
	return false
}

// AddTo adds an amount to one of several sums, and returns the sums, which may be nil before.
func AddTo[K comparable](sums map[K]Resources, key K, amount *Resources) map[K]Resources {
	if sums == nil {
		sums = map[K]Resources{}
	}
	sum := sums[key]
	sum.Add(amount, 1)
	sums[key] = sum
	return sums
}

// Lacks reports whether a request, with its Pods, is more than what is left of a node. A resource that the node does
// not list is not judged: an extender or a driver may have it.
func Lacks(request, allocatable, requested *Resources) bool {
	if request.Pods+requested.Pods > allocatable.Pods ||
		request.MilliCPU > 0 && request.MilliCPU+requested.MilliCPU > allocatable.MilliCPU ||
		request.Memory > 0 && request.Memory+requested.Memory > allocatable.Memory ||
		request.EphemeralStorage > 0 && request.EphemeralStorage+requested.EphemeralStorage > allocatable.EphemeralStorage {
		return true
	}
	for name, amount := range request.Scalar {
		if limit, listed := allocatable.Scalar[name]; listed && amount+requested.Scalar[name] > limit {
			return true
		}
	}
	return false
}
