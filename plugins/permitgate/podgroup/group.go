package podgroup

import (
	"encoding/json"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/plugins/permitgate/gang"
)

// Group is what a PodGroup of either API asks for. It does not change.
type Group struct {
	ID
	metav1.Object // as the informer showed it; not to be modified
	API           schema.GroupVersion

	// Gang is what its members need; nil if they are no gang that this scheduler guards, for which Unguarded is the
	// reason of a condition if the owner may expect otherwise.
	Gang      *gang.Spec
	Unguarded Complaint
	// Topology is how to pack the gang. Constrained is true if kube-scheduler packs it by spec.schedulingConstraints.
	Topology     Topology
	Constrained  bool
	MinResources v1.ResourceList
	// KeepsAll is true if pods of the group are to be preempted all together or not at all, even if it is no gang.
	KeepsAll bool
	// SharesClaims is true for a native group with ResourceClaims of its own.
	SharesClaims bool
	// Complaints say of each setting what is wrong with it, also where nothing is. That of a native group is of its
	// topology.
	Complaints []Complaint
}

// Complaint is something that is wrong with a PodGroup. Text is empty if nothing is.
type Complaint struct{ Reason, Text string }

// The reasons of complaints about PodGroups.
const (
	ReasonInvalidTimeout  = "InvalidScheduleTimeout"
	ReasonInvalidTopology = "InvalidTopology"
	// ReasonInvalidReplacements: the annotation of replacements has another value than those that there are.
	ReasonInvalidReplacements = "InvalidReplacements"
)

// Reference refers to the PodGroup, for events.
func (g *Group) Reference() *v1.ObjectReference {
	return &v1.ObjectReference{APIVersion: g.API.String(), Kind: "PodGroup", Namespace: g.ID.Namespace, Name: g.ID.Name, UID: g.GetUID()}
}

// Read returns what a PodGroup of scheduling.x-k8s.io asks for.
func Read(group *v1alpha1.PodGroup) *Group {
	g := &Group{ID: ID{Key(group), false}, Object: group, API: v1alpha1.SchemeGroupVersion, MinResources: group.Spec.MinResources}
	timeout, wrongTimeout := TimeoutOf(group)
	topology, wrongTopology := TopologyOf(group)
	oneByOne, wrongReplacements := ReplacedOneByOne(group)
	resources, _ := json.Marshal(g.MinResources) // it was read as JSON
	g.Topology = topology
	g.Gang = &gang.Spec{
		UID: group.UID, MinMember: int(group.Spec.MinMember), Awaits: len(g.MinResources) > 0, Timeout: timeout, OneByOne: oneByOne,
		Revision: fmt.Sprint(topology, string(resources)),
	}
	g.Complaints = []Complaint{{ReasonInvalidTimeout, wrongTimeout}, {ReasonInvalidTopology, wrongTopology}, {ReasonInvalidReplacements, wrongReplacements}}
	return g
}
