package history

import (
	"math"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/apis/v1alpha1"
)

// never is later than anything.
var never = time.Unix(1<<40, 0)

// Moment is a place in the record's order, and its time.
type Moment struct {
	Revision int64
	Time     time.Time
}

// Never is a moment that does not come.
var Never = Moment{Revision: math.MaxInt64, Time: never}

// Life is what became of a pod.
type Life struct {
	Pod     *v1.Pod // as it was bound, or as it was last
	Created Moment
	Bound   Moment
	Writer  string // who bound it
	Ended   Moment // its deletion began, or it finished
	Removed Moment // it needs no room any more
	// EndedBy is the replica that had it deleted, if one did.
	EndedBy string
}

// Node is where it is bound.
func (l *Life) Node() string { return l.Pod.Spec.NodeName }

// BoundAt reports whether it takes room on its node at a revision.
func (l *Life) BoundAt(revision int64) bool {
	return l.Bound.Revision <= revision && revision < l.Removed.Revision
}

// Span is a time for which an object did not change.
type Span[T any] struct {
	From, To Moment
	Object   T
}

// Index answers questions about a record.
type Index struct {
	*Record
	Lives        []*Life // in the order of their creation
	OnNode       map[string][]*Life
	ByUID        map[types.UID]*Life
	Nodes        map[string][]Span[*v1.Node]                     // by name
	Groups       map[string][]Span[*schedulingv1alpha1.PodGroup] // by namespace and name; its status is not looked at
	Policies     map[string][]Span[*v1alpha1.ZoneSpreadPolicy]   // the same
	Reservations map[string][]Span[*v1alpha1.ZoneReservation]    // by name, with its status
	Attempts     map[string][]*Request                           // binds that were refused, by node
}

// NewIndex indexes a record.
func NewIndex(r *Record) *Index {
	x := &Index{
		Record: r, OnNode: map[string][]*Life{}, ByUID: map[types.UID]*Life{}, Nodes: map[string][]Span[*v1.Node]{},
		Groups: map[string][]Span[*schedulingv1alpha1.PodGroup]{}, Policies: map[string][]Span[*v1alpha1.ZoneSpreadPolicy]{}, Reservations: map[string][]Span[*v1alpha1.ZoneReservation]{},
		Attempts: map[string][]*Request{},
	}
	for i := range r.Changes {
		c := &r.Changes[i]
		at := Moment{c.Revision, c.Time}
		switch {
		case c.Pod != nil:
			x.pod(c, at)
		case c.Node != nil:
			x.Nodes[c.Node.Name] = extend(x.Nodes[c.Node.Name], at, c.Node, c.Deleted, sameNode)
		case c.Group != nil:
			key := c.Group.Namespace + "/" + c.Group.Name
			x.Groups[key] = extend(x.Groups[key], at, c.Group, c.Deleted, func(a, b *schedulingv1alpha1.PodGroup) bool {
				return a.UID == b.UID && a.Spec.MinMember == b.Spec.MinMember
			})
		case c.Policy != nil:
			key := c.Policy.Namespace + "/" + c.Policy.Name
			x.Policies[key] = extend(x.Policies[key], at, c.Policy, c.Deleted, func(a, b *v1alpha1.ZoneSpreadPolicy) bool {
				return a.UID == b.UID && a.Generation == b.Generation
			})
		case c.Reservation != nil:
			key := c.Reservation.Name
			x.Reservations[key] = extend(x.Reservations[key], at, c.Reservation, c.Deleted, func(_, _ *v1alpha1.ZoneReservation) bool { return false })
		}
	}
	for _, l := range x.Lives {
		if l.Node() != "" {
			x.OnNode[l.Node()] = append(x.OnNode[l.Node()], l)
		}
	}
	for i := range r.Requests {
		if q := &r.Requests[i]; q.Binds() && !q.DryRun && !q.Accepted() {
			x.Attempts[q.Node] = append(x.Attempts[q.Node], q)
		}
	}
	return x
}

func (x *Index) pod(c *Change, at Moment) {
	l := x.ByUID[c.Pod.UID]
	if l == nil {
		l = &Life{Created: at, Bound: Never, Ended: Never, Removed: Never}
		x.ByUID[c.Pod.UID], x.Lives = l, append(x.Lives, l)
	}
	finished := c.Pod.Status.Phase == v1.PodSucceeded || c.Pod.Status.Phase == v1.PodFailed
	if l.Bound == Never {
		l.Pod = c.Pod
		if c.Pod.Spec.NodeName != "" && !c.Deleted {
			l.Bound, l.Writer = at, c.Writer
		}
	}
	if l.Ended == Never && (c.Deleted || finished || c.Pod.DeletionTimestamp != nil) {
		l.Ended, l.EndedBy = at, c.Writer
	}
	if l.Removed == Never && (c.Deleted || finished) {
		l.Removed = at
	}
}

// extend adds a version of an object to its spans.
func extend[T any](spans []Span[T], at Moment, object T, deleted bool, same func(a, b T) bool) []Span[T] {
	if last := len(spans) - 1; last >= 0 && spans[last].To == Never {
		if !deleted && same(spans[last].Object, object) {
			return spans
		}
		spans[last].To = at
	}
	if deleted {
		return spans
	}
	return append(spans, Span[T]{From: at, To: Never, Object: object})
}

// sameNode reports whether two versions of a node are alike for a scheduler.
func sameNode(a, b *v1.Node) bool {
	return a.UID == b.UID && Zone(a) == Zone(b) && a.Spec.Unschedulable == b.Spec.Unschedulable && Ready(a) == Ready(b) &&
		slices.EqualFunc(a.Spec.Taints, b.Spec.Taints, func(s, t v1.Taint) bool { return s.Key == t.Key && s.Effect == t.Effect }) &&
		a.Status.Allocatable.Cpu().Equal(*b.Status.Allocatable.Cpu()) && a.Status.Allocatable.Memory().Equal(*b.Status.Allocatable.Memory())
}

// Zone is a node's.
func Zone(node *v1.Node) string { return node.Labels[v1.LabelTopologyZone] }

// Ready reports whether a node is.
func Ready(node *v1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == v1.NodeReady {
			return c.Status == v1.ConditionTrue
		}
	}
	return false
}

// At returns the version of an object at a revision; false means that there was none.
func At[T any](spans []Span[T], revision int64) (Span[T], bool) {
	for _, s := range spans {
		if s.From.Revision <= revision && revision < s.To.Revision {
			return s, true
		}
	}
	return Span[T]{}, false
}

// During returns the versions of an object that there were between two times.
func During[T any](spans []Span[T], from, to time.Time) []Span[T] {
	var out []Span[T]
	for _, s := range spans {
		if !s.From.Time.After(to) && !s.To.Time.Before(from) {
			out = append(out, s)
		}
	}
	return out
}

// Throughout returns the one version of an object that there was from one time to another; false means that there was
// none, or that it changed.
func Throughout[T any](spans []Span[T], from, to time.Time) (T, bool) {
	for _, s := range spans {
		if !s.From.Time.After(from) && !s.To.Time.Before(to) {
			return s.Object, true
		}
	}
	var none T
	return none, false
}

// Disturbed reports whether a fault after which a scheduler may not do what it had decided, or know what had been done,
// lasted at some time between the two.
func (x *Index) Disturbed(from, to time.Time) bool {
	return slices.ContainsFunc(x.Faults, func(f Fault) bool {
		return !f.Nodes && !f.Began.After(to) && !f.Ended.Before(from)
	})
}
