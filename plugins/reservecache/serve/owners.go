package serve

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
)

// Owner is what a pod gets from the reservation that it belongs to.
type Owner struct {
	Claim types.UID
	// Name is that of the claim, for messages.
	Name string
	// Required means that the pod has to run in slots.
	Required bool
	// Counted means that it matters on which nodes the reservation's pods run.
	Counted bool
}

// NeedsSlot reports whether a pod has to run in slots; a pod of no reservation, whose Owner is nil, has not.
func (o *Owner) NeedsSlot() bool { return o != nil && o.Required }

// ownerIndex finds the reservation that a pod belongs to. It does not change.
type ownerIndex struct {
	namespaces map[string]*namespaceOwners
}

// namespaceOwners are the selectors of a namespace. Each is listed under the values that it requires of one label, so
// that a pod is compared with those only that ask for what it has.
type namespaceOwners struct {
	byLabel map[string]map[string][]ownerEntry
	// rest are those that require no values. All lists are in the order of rank.
	rest []ownerEntry
}

type ownerEntry struct {
	owner
	// rank is the place of the reservation by age.
	rank int
	spec *spec
	// gives is what the reservation gives its pods.
	gives *Owner
}

// indexOwners makes the index of reservations that apply, which must be sorted by age.
func indexOwners(specs []*spec) *ownerIndex {
	index := &ownerIndex{namespaces: map[string]*namespaceOwners{}}
	for rank, s := range specs {
		gives := &Owner{Claim: s.uid, Name: s.claimName(), Required: s.required, Counted: s.counted()}
		for _, o := range s.owners {
			selectors := index.namespaces[o.namespace]
			if selectors == nil {
				selectors = &namespaceOwners{byLabel: map[string]map[string][]ownerEntry{}}
				index.namespaces[o.namespace] = selectors
			}
			selectors.add(ownerEntry{owner: o, rank: rank, spec: s, gives: gives})
		}
	}
	return index
}

func (n *namespaceOwners) add(e ownerEntry) {
	key, values := e.required()
	if key == "" {
		n.rest = append(n.rest, e)
		return
	}
	byValue := n.byLabel[key]
	if byValue == nil {
		byValue = map[string][]ownerEntry{}
		n.byLabel[key] = byValue
	}
	for _, value := range values {
		byValue[value] = append(byValue[value], e)
	}
}

// required returns a label of which the selector asks for one of some values, the one with the fewest; empty if there
// is none.
func (o *owner) required() (key string, values []string) {
	requirements, _ := o.selector.Requirements()
	for i := range requirements {
		r := &requirements[i]
		switch r.Operator() {
		case selection.In, selection.Equals, selection.DoubleEquals:
			if v := r.ValuesUnsorted(); key == "" || len(v) < len(values) || len(v) == len(values) && r.Key() < key {
				key, values = r.Key(), v
			}
		default:
		}
	}
	return key, values
}

// of returns what the pod's reservation gives it, or nil.
func (x *ownerIndex) of(pod *v1.Pod) *Owner {
	selectors := x.namespaces[pod.Namespace]
	if selectors == nil {
		return nil
	}
	var best *ownerEntry
	look := func(entries []ownerEntry) {
		for i := range entries {
			if e := &entries[i]; best != nil && best.rank <= e.rank {
				return
			} else if e.selector.Matches(labels.Set(pod.Labels)) {
				best = e
				return
			}
		}
	}
	look(selectors.rest)
	for key, byValue := range selectors.byLabel {
		if value, has := pod.Labels[key]; has {
			look(byValue[value])
		}
	}
	if best == nil {
		return nil
	}
	return best.gives
}

// matching returns the reservations that select a pod, the oldest first.
func (x *ownerIndex) matching(pod *v1.Pod) (specs []*spec) {
	selectors := x.namespaces[pod.Namespace]
	if selectors == nil {
		return nil
	}
	collect := func(entries []ownerEntry) {
		for i := range entries {
			if e := &entries[i]; e.selector.Matches(labels.Set(pod.Labels)) && !slices.Contains(specs, e.spec) {
				specs = append(specs, e.spec)
			}
		}
	}
	collect(selectors.rest)
	for key, byValue := range selectors.byLabel {
		if value, has := pod.Labels[key]; has {
			collect(byValue[value])
		}
	}
	slices.SortFunc(specs, compareAge)
	return specs
}
