package serve

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"zonewise.dev/plugins/reservecache/holds"
)

// Owner is what a pod gets from the reservation that it belongs to.
type Owner struct {
	Claim types.UID
	// Name is that of the claim, for messages.
	Name string
	// Use says when the pod takes a slot.
	Use holds.Use
}

// ownerIndex finds the reservation that a pod belongs to. It does not change.
type ownerIndex struct {
	namespaces map[string]*namespaceOwners
}

// namespaceOwners are the selectors of a namespace. Each is listed under the values that it requires of one label, so that a pod
// is compared with those only that ask for what it has.
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
		gives := &Owner{Claim: s.uid, Name: s.claimName(), Use: s.use}
		for _, o := range s.owners {
			in := index.namespaces[o.namespace]
			if in == nil {
				in = &namespaceOwners{byLabel: map[string]map[string][]ownerEntry{}}
				index.namespaces[o.namespace] = in
			}
			in.add(ownerEntry{owner: o, rank: rank, spec: s, gives: gives})
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

// required returns a label of which the selector asks for one of some values, the one with the fewest; empty if there is none.
func (o *owner) required() (key string, values []string) {
	for i := range o.requirements {
		r := &o.requirements[i]
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
	in := x.namespaces[pod.Namespace]
	if in == nil {
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
	look(in.rest)
	for key, byValue := range in.byLabel {
		if value, has := pod.Labels[key]; has {
			look(byValue[value])
		}
	}
	if best == nil {
		return nil
	}
	return best.gives
}

// overlaps returns the names of the reservations that win pods which s names, too: they are older.
func (x *ownerIndex) overlaps(s *spec) []string {
	names := sets.New[string]()
	for i := range s.owners {
		o := &s.owners[i]
		in := x.namespaces[o.namespace]
		if in == nil {
			continue
		}
		look := func(entries []ownerEntry) {
			for j := range entries {
				e := &entries[j]
				if e.spec.uid != s.uid && e.spec.before(s) && !names.Has(e.spec.name) && satisfiable(slices.Concat(o.requirements, e.requirements)) {
					names.Insert(e.spec.name)
				}
			}
		}
		look(in.rest)
		for key, byValue := range in.byLabel {
			allowed := valuesOf(o.requirements, key)
			if allowed == nil {
				for _, entries := range byValue {
					look(entries)
				}
				continue
			}
			for value := range allowed {
				look(byValue[value])
			}
		}
	}
	return sets.List(names)
}

// valuesOf returns the values that requirements allow a label to have, and nil when all are.
func valuesOf(requirements labels.Requirements, key string) sets.Set[string] {
	for i := range requirements {
		r := &requirements[i]
		if r.Key() != key {
			continue
		}
		switch r.Operator() {
		case selection.In, selection.Equals, selection.DoubleEquals:
			return sets.New(r.ValuesUnsorted()...)
		default:
		}
	}
	return nil
}

// labelTerms are what a conjunction of requirements asks of one label.
type labelTerms struct {
	// values are the allowed ones; nil while all are.
	values sets.Set[string]
	not    sets.Set[string]
	// present and absent are whether the label must be there, or must not.
	present, absent bool
}

// satisfiable reports whether labels exist that meet all requirements. Each requirement is about one key, so that keys can
// be looked at one by one.
func satisfiable(requirements labels.Requirements) bool {
	byKey := map[string]*labelTerms{}
	for i := range requirements {
		r := &requirements[i]
		d := byKey[r.Key()]
		if d == nil {
			d = &labelTerms{not: sets.New[string]()}
			byKey[r.Key()] = d
		}
		values := r.ValuesUnsorted()
		switch r.Operator() {
		case selection.In, selection.Equals, selection.DoubleEquals:
			d.present = true
			if d.values == nil {
				d.values = sets.New(values...)
			} else {
				d.values = d.values.Intersection(sets.New(values...))
			}
		case selection.NotIn, selection.NotEquals:
			d.not.Insert(values...)
		case selection.Exists:
			d.present = true
		case selection.DoesNotExist:
			d.absent = true
		default:
			// Comparisons of numbers do not occur in selectors of pods; if they did, they might be met.
		}
	}
	for _, d := range byKey {
		if d.present && d.absent || d.values != nil && d.values.Difference(d.not).Len() == 0 {
			return false
		}
	}
	return true
}
