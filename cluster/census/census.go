// Package census counts what is in a snapshot: nodes and their zones, pods and their requests, workloads, gangs. It
// does not say what a scheduler would do.
package census

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/resource"
	schedv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/internal/amount"
	"zonewise.dev/internal/nodes"
	"zonewise.dev/internal/pods"
	"zonewise.dev/plugins/zonespread/counts"
	"zonewise.dev/sim/kinds"
)

// Census is a snapshot that has been counted.
type Census struct {
	Snapshot *snapshot.Snapshot
	// Now is the time of the snapshot.
	Now   time.Time
	Nodes []*Node // by name
	// Pods are those that neither terminate nor have ended, by namespace and name.
	Pods []*Pod

	byName      map[string]*Node
	byNamespace map[string][]*Pod                    // by namespace
	owners      map[types.UID]*metav1.OwnerReference // the controllers of the controllers of pods
	groups      map[string]*schedv1alpha1.PodGroup   // by the keys of gangs, as the next three
	natives     map[string]*kinds.NativePodGroup     // those without a gang policy, too
	members     map[string][]*Pod
	finished    map[string][]types.UID // the controllers of members that have succeeded
	index       func() *counts.Index   // made when it is needed
}

// Node is a node and what its pods ask for.
type Node struct {
	*v1.Node
	// Zone is the value of topology.kubernetes.io/zone, empty when there is none.
	Zone string
	Requested,
	Allocatable Amounts
	Pods []*Pod
}

// Pod is a pod.
type Pod struct {
	*v1.Pod
	// On is its node, nil while the pod waits, or if the node does not exist.
	On *Node
}

// Amounts are amounts of resources, in the units of package amount.
type Amounts map[v1.ResourceName]int64

func (a Amounts) add(list v1.ResourceList) {
	for name, q := range list {
		a[name] += amount.Of(name, q)
	}
}

// Add adds other amounts.
func (a Amounts) Add(other Amounts) {
	for name, n := range other {
		a[name] += n
	}
}

// Take counts a snapshot.
func Take(s *snapshot.Snapshot) *Census {
	c := &Census{
		Snapshot: s, Now: s.TakenAt, byName: map[string]*Node{}, byNamespace: map[string][]*Pod{},
		owners: map[types.UID]*metav1.OwnerReference{},
		groups: map[string]*schedv1alpha1.PodGroup{}, natives: map[string]*kinds.NativePodGroup{},
		members: map[string][]*Pod{}, finished: map[string][]types.UID{},
	}
	c.index = sync.OnceValue(c.newIndex)
	if c.Now.IsZero() {
		c.Now = time.Now()
	}
	for _, node := range snapshot.List[*v1.Node](s) {
		n := &Node{Node: node, Zone: node.Labels[v1.LabelTopologyZone], Requested: Amounts{}, Allocatable: Amounts{}}
		n.Allocatable.add(node.Status.Allocatable)
		c.Nodes = append(c.Nodes, n)
		c.byName[node.Name] = n
	}
	slices.SortFunc(c.Nodes, func(a, b *Node) int { return strings.Compare(a.Name, b.Name) })
	for _, obj := range s.Objects() {
		over := metav1.GetControllerOfNoCopy(obj)
		if _, isPod := obj.(*v1.Pod); over != nil && !isPod {
			c.owners[obj.GetUID()] = over
		}
	}
	for _, group := range snapshot.List[*schedv1alpha1.PodGroup](s) {
		c.groups[Key(group.Namespace, group.Name, false)] = group
	}
	for _, group := range snapshot.List[*kinds.NativePodGroup](s) {
		c.natives[Key(group.Namespace, group.Name, true)] = group
	}
	for _, pod := range snapshot.List[*v1.Pod](s) {
		c.takePod(pod)
	}
	return c
}

func (c *Census) takePod(pod *v1.Pod) {
	gang := c.GangOf(pod)
	switch {
	case pods.Ended(pod):
		if over := metav1.GetControllerOf(pod); gang != "" && over != nil && pod.Status.Phase == v1.PodSucceeded {
			c.finished[gang] = append(c.finished[gang], over.UID)
		}
		return
	case pod.DeletionTimestamp != nil && pod.Spec.NodeName == "":
		return
	}
	p := &Pod{Pod: pod, On: c.byName[pod.Spec.NodeName]}
	if p.On != nil {
		p.On.Requested.add(Requests(pod))
		p.On.Requested[v1.ResourcePods]++
	}
	if pod.DeletionTimestamp != nil {
		return // until it is gone it takes room, but does not count otherwise
	}
	if p.On != nil {
		p.On.Pods = append(p.On.Pods, p)
	}
	c.Pods = append(c.Pods, p)
	c.byNamespace[pod.Namespace] = append(c.byNamespace[pod.Namespace], p)
	if gang != "" {
		c.members[gang] = append(c.members[gang], p)
	}
}

// Requests are what a pod takes from its node.
func Requests(pod *v1.Pod) v1.ResourceList {
	return resource.PodRequests(pod, resource.PodResourcesOptions{})
}

// Refusal returns what the scheduler wrote into the condition PodScheduled of a pod that it has not placed, or nothing.
func Refusal(pod *v1.Pod) v1.PodCondition {
	if c := pods.Condition(pod, v1.PodScheduled); c != nil && c.Status != v1.ConditionTrue {
		return *c
	}
	return v1.PodCondition{}
}

// Waits reports whether a pod has no node.
func (p *Pod) Waits() bool { return p.Spec.NodeName == "" }

// Key is "namespace/name".
func (p *Pod) Key() string { return p.Namespace + "/" + p.Name }

// FindNode returns a node by its name, nil when there is none.
func (c *Census) FindNode(name string) *Node { return c.byName[name] }

// PodsIn returns the pods of a namespace, all pods when it is empty.
func (c *Census) PodsIn(namespace string) []*Pod {
	if namespace == "" {
		return c.Pods
	}
	return c.byNamespace[namespace]
}

// FindPod returns a pod by its namespace and name, nil when there is none.
func (c *Census) FindPod(namespace, name string) *Pod {
	for _, p := range c.byNamespace[namespace] {
		if p.Name == name {
			return p
		}
	}
	return nil
}

// ZoneNames returns the names of the zones with nodes, in order. Nodes without a zone are in "".
func (c *Census) ZoneNames() []string {
	zones := map[string]bool{}
	for _, n := range c.Nodes {
		zones[n.Zone] = true
	}
	return slices.Sorted(maps.Keys(zones))
}

// Room is what a zone has.
type Room struct {
	Zone                   string
	Nodes                  []*Node
	Ready, Pods            int
	Requested, Allocatable Amounts
}

// ZoneRooms returns what the zones have, by name.
func (c *Census) ZoneRooms() []Room {
	rooms := map[string]*Room{}
	for _, n := range c.Nodes {
		r := rooms[n.Zone]
		if r == nil {
			r = &Room{Zone: n.Zone, Requested: Amounts{}, Allocatable: Amounts{}}
			rooms[n.Zone] = r
		}
		r.Nodes = append(r.Nodes, n)
		if nodes.Ready(n.Node) {
			r.Ready++
		}
		r.Pods += len(n.Pods)
		r.Requested.Add(n.Requested)
		r.Allocatable.Add(n.Allocatable)
	}
	var out []Room
	for _, zone := range slices.Sorted(maps.Keys(rooms)) {
		out = append(out, *rooms[zone])
	}
	return out
}

// Workload names what a pod belongs to, as in "Deployment shop/web": the controller of its controller, its controller,
// or the pod itself.
func (c *Census) Workload(pod *v1.Pod) string {
	over := metav1.GetControllerOf(pod)
	if over == nil {
		return "Pod " + pod.Namespace + "/" + pod.Name
	}
	if above := c.owners[over.UID]; above != nil {
		over = above
	}
	return over.Kind + " " + pod.Namespace + "/" + over.Name
}
