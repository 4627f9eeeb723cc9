package snapshot

import (
	"cmp"
	"reflect"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/internal/informer"
	"zonewise.dev/sim/kinds"
)

// Snapshot has the objects of a cluster at one moment that the commands use.
type Snapshot struct {
	// TakenAt is when it was read.
	TakenAt time.Time
	// Missing says what could not be read, and why.
	Missing []Missing
	// Leases are those of schedulers, as far as they are there and could be read.
	Leases []Lease

	objects map[reflect.Type][]client.Object
}

// New returns an empty snapshot of that time.
func New(takenAt time.Time) *Snapshot {
	return &Snapshot{TakenAt: takenAt, objects: map[reflect.Type][]client.Object{}}
}

// Add adds objects.
func (s *Snapshot) Add(objects ...client.Object) {
	for _, obj := range objects {
		t := reflect.TypeOf(obj)
		s.objects[t] = append(s.objects[t], obj)
	}
}

// Objects returns the objects that a copy of the cluster has, kind by kind: all but those of AdmissionKinds.
func (s *Snapshot) Objects() []client.Object { return s.objectsOf(every) }

func (s *Snapshot) objectsOf(kinds []Kind) []client.Object {
	var out []client.Object
	for _, k := range kinds {
		out = append(out, s.objects[k.goType]...)
	}
	return out
}

// List returns the objects of a kind.
func List[T client.Object](s *Snapshot) []T {
	objects := s.objects[reflect.TypeFor[T]()]
	out := make([]T, len(objects))
	for i, obj := range objects {
		out[i] = obj.(T) //nolint:forcetypeassert // the key is the type
	}
	return out
}

// Sorted returns the objects of a kind in a namespace (all if it is empty) by namespace and name.
func Sorted[T client.Object](s *Snapshot, namespace string) []T {
	objects := slices.DeleteFunc(List[T](s), func(obj T) bool {
		return namespace != "" && obj.GetNamespace() != namespace
	})
	slices.SortFunc(objects, func(a, b T) int {
		return cmp.Or(strings.Compare(a.GetNamespace(), b.GetNamespace()), strings.Compare(a.GetName(), b.GetName()))
	})
	return objects
}

// Missing is a kind that could not be read.
type Missing struct {
	// Resource is its plural name with its group, such as podgroups.scheduling.x-k8s.io.
	Resource string `json:"resource"`
	// Reason is NotInstalled, OtherVersion, Forbidden, Unreadable or Outdated.
	Reason string `json:"reason"`
	// Detail is the error of an Unreadable kind; of an Outdated one the time of the last answer and the error; the
	// versions of one of OtherVersion.
	Detail string `json:"detail,omitempty"`
}

// The reasons why a kind is missing.
const (
	NotInstalled = string(informer.NotInstalled)
	Forbidden    = string(informer.Forbidden)
	// OtherVersion: the API server serves the kind, in versions that this program does not read.
	OtherVersion = "OtherVersion"
	// Unreadable: the API server serves the kind, and does not answer about it.
	Unreadable = "Unreadable"
	// Outdated: the objects are in the snapshot as they were when the API server last answered.
	Outdated = "Outdated"
)

// Message describes it in one line.
func (m Missing) Message() string {
	switch m.Reason {
	case NotInstalled:
		return m.Resource + " are not installed in this cluster"
	case OtherVersion:
		return m.Resource + " are served as " + m.Detail + ", which this version of the program does not read"
	case Unreadable:
		return m.Resource + " could not be read: " + m.Detail
	case Outdated:
		return m.Resource + " have not been read since " + m.Detail
	}
	return "you may not list " + m.Resource + ", they are left out"
}

// Notes says in a line each what the answers lack. A kind of Kubernetes that an API server does not have lacks nothing.
func (s *Snapshot) Notes() []string {
	var out []string
	for _, m := range s.Missing {
		if m.Reason != NotInstalled || strings.Contains(m.Resource, ".zonewise.dev") ||
			strings.Contains(m.Resource, ".x-k8s.io") {
			out = append(out, m.Message())
		}
	}
	return out
}

// Has reports whether a kind was read, now or before.
func (s *Snapshot) Has(resource string) bool {
	return !slices.ContainsFunc(s.Missing, func(m Missing) bool {
		return m.Resource == resource && m.Reason != Outdated
	})
}

// Unread returns the first of some kinds that the cluster has, as far as is known, and that were not read; empty if
// there is none.
func (s *Snapshot) Unread(resources ...string) string {
	for _, resource := range resources {
		if !s.Has(resource) && !slices.Contains(s.NotInstalled(), resource) {
			return resource
		}
	}
	return ""
}

// NotInstalled returns the kinds that the cluster does not have.
func (s *Snapshot) NotInstalled() []string {
	var out []string
	for _, m := range s.Missing {
		if m.Reason == NotInstalled {
			out = append(out, m.Resource)
		}
	}
	return out
}

// When returns when the cluster was read.
func (s *Snapshot) When() time.Time { return s.TakenAt }

// Kind is a kind of objects that a snapshot has.
type Kind struct {
	// Resource is what requests call it, such as podgroups.scheduling.x-k8s.io.
	Resource string
	// Needed kinds are those without which there is no snapshot.
	Needed bool
	// List is an empty list of the kind, Example an empty object.
	List    func() client.ObjectList
	Example func() client.Object

	goType reflect.Type
}

// Kinds are the kinds that a copy of a cluster has.
func Kinds() []Kind { return every }

// AdmissionKinds are the kinds by which an API server changes new pods. Only who adds pods needs them.
func AdmissionKinds() []Kind { return admission }

var (
	every     = kindsOf(kinds.All())
	admission = kindsOf(kinds.Admission())
	// readable are all kinds of a snapshot.
	readable = slices.Concat(admission, every)
)

func kindsOf(examples []client.Object) []Kind {
	var out []Kind
	for _, obj := range examples {
		resource, gvk := kinds.ResourceOf(obj)
		list := gvk
		list.Kind += "List"
		_, isPod := obj.(*v1.Pod)
		_, isNode := obj.(*v1.Node)
		out = append(out, Kind{
			Resource: resource.String(), Needed: isPod || isNode, goType: reflect.TypeOf(obj),
			Example: func() client.Object { return obj.DeepCopyObject().(client.Object) }, //nolint:forcetypeassert // a copy has the type of the original
			List: func() client.ObjectList {
				o, err := kinds.Scheme.New(list)
				if err != nil {
					panic(err) // every kind of the scheme has a list
				}
				return o.(client.ObjectList) //nolint:forcetypeassert // as the name says
			},
		})
	}
	return out
}
