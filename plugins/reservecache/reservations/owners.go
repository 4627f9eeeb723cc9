package reservations

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/sets"

	"zonewise.dev/plugins/reservecache/ledger"
)

// Owner is what a pod gets from the reservation that it belongs to.
type Owner struct {
	Claim ledger.ClaimID
	// Name is that of the claim, for messages.
	Name string
	// Use says when the pod takes a slot.
	Use ledger.Use
}

// ownerIndex tells which reservation a pod belongs to. It does not change.
type ownerIndex struct {
	// byNamespace are the selectors of the reservations that apply, of the oldest reservation first.
	byNamespace map[string][]ownerEntry
}

type ownerEntry struct {
	selector labels.Selector
	owner    *Owner
}

// indexOwners makes the index of reservations that apply, which must be sorted by age.
func indexOwners(specs []*spec) *ownerIndex {
	index := &ownerIndex{byNamespace: map[string][]ownerEntry{}}
	for _, s := range specs {
		o := &Owner{Claim: s.id, Name: claimName(s.name), Use: s.use}
		for _, selects := range s.owners {
			index.byNamespace[selects.namespace] = append(index.byNamespace[selects.namespace], ownerEntry{selects.selector, o})
		}
	}
	return index
}

// of returns what the pod's reservation gives it, or nil.
func (x *ownerIndex) of(pod *v1.Pod) *Owner {
	for _, e := range x.byNamespace[pod.Namespace] {
		if e.selector.Matches(labels.Set(pod.Labels)) {
			return e.owner
		}
	}
	return nil
}

// overlaps returns the names of the other reservations that win pods which s names, too: they are older.
func overlaps(s *spec, others []*spec) []string {
	var names []string
	for _, other := range others {
		if other.id != s.id && other.before(s) && overlap(s.owners, other.owners) {
			names = append(names, other.name)
		}
	}
	slices.Sort(names)
	return names
}

// overlap tells whether a pod can be selected by both.
func overlap(a, b []owner) bool {
	for _, x := range a {
		for _, y := range b {
			if x.namespace == y.namespace && satisfiable(slices.Concat(x.requirements, y.requirements)) {
				return true
			}
		}
	}
	return false
}

// demand is what a conjunction of requirements asks of one label.
type demand struct {
	// values are the allowed ones; nil while all are.
	values sets.Set[string]
	not    sets.Set[string]
	// present and absent are whether the label must be there, or must not.
	present, absent bool
}

// satisfiable tells whether labels exist that meet all requirements. Each requirement is about one key, so that keys can
// be looked at one by one.
func satisfiable(requirements labels.Requirements) bool {
	byKey := map[string]*demand{}
	for i := range requirements {
		r := &requirements[i]
		d := byKey[r.Key()]
		if d == nil {
			d = &demand{not: sets.New[string]()}
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
