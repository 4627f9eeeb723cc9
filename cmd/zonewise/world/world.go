package world

import (
	"cmp"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/resource"
	schedv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/cmd/zonewise/snapshot"
	"zonewise.dev/plugins/reservecache/ledger"
)

// World is a cluster that can be asked and changed. See the package's documentation.
type World struct {
	Snapshot *snapshot.Snapshot
	Now      time.Time

	Nodes  []*Node // by name
	byName map[string]*Node
	// Pods are the pods that are neither terminating nor finished, by namespace and name.
	Pods []*Pod

	places     map[string][]*Pod            // by namespace
	byLabel    map[labelKey][]*Pod          // to find what a selector matches
	namespaces map[string]map[string]string // name -> labels
	claims     map[[2]string]*corev1.PersistentVolumeClaim
	volumes    map[string]*corev1.PersistentVolume
	policies   []*Policy
	holds      []*Hold
	workloads  *workloads
	bearers    map[string]*bearers // pods with anti-affinity of their own, by term
	classes    map[string]*Class
	judged     map[string]judged                  // by what pods ask of a node
	groups     map[string]*schedv1alpha1.PodGroup // by namespace/name, as all about gangs
	members    map[string][]*Pod
	succeeded  map[string][]types.UID // the controllers of members that have
	keys       map[string]bool        // of labels that some selector looks at
}

type labelKey struct{ namespace, key, value string }

// Node is a node and what is on it.
type Node struct {
	Object *corev1.Node
	// Zone is the value of topology.kubernetes.io/zone, empty when it has none.
	Zone string
	// Lost nodes take nobody and count nowhere.
	Lost        bool
	Allocatable ledger.Resources
	Requested   ledger.Resources

	index int
	free  float64
	holds []*slot
	pods  []*Pod // in no order
}

// Pod is a pod, bound or waiting.
type Pod struct {
	Object *corev1.Pod
	// Node is where it is, nil while it waits.
	Node     *Node
	Requests ledger.Resources

	slotOf *Hold // of which it took a slot in this world
}

// Key is "namespace/name".
func (p *Pod) Key() string { return p.Object.Namespace + "/" + p.Object.Name }

// Live tells whether a pod counts: it does not terminate and has not finished.
func Live(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

// New builds a world.
func New(s *snapshot.Snapshot, now time.Time) *World {
	w := &World{
		Snapshot: s, Now: now,
		byName: make(map[string]*Node, len(s.Nodes)), namespaces: map[string]map[string]string{},
		places: map[string][]*Pod{}, byLabel: map[labelKey][]*Pod{}, bearers: map[string]*bearers{}, classes: map[string]*Class{}, judged: map[string]judged{},
		claims: map[[2]string]*corev1.PersistentVolumeClaim{}, volumes: map[string]*corev1.PersistentVolume{},
		groups: map[string]*schedv1alpha1.PodGroup{}, members: map[string][]*Pod{}, succeeded: map[string][]types.UID{}, keys: map[string]bool{},
	}
	for i := range s.Nodes {
		object := &s.Nodes[i]
		w.Nodes = append(w.Nodes, &Node{
			Object: object, Zone: object.Labels[corev1.LabelTopologyZone], Allocatable: ledger.ResourcesOf(object.Status.Allocatable), free: 1,
		})
	}
	slices.SortFunc(w.Nodes, func(a, b *Node) int { return cmp.Compare(a.Object.Name, b.Object.Name) })
	for i, n := range w.Nodes {
		n.index = i
		w.byName[n.Object.Name] = n
	}
	for i := range s.Namespaces {
		w.namespaces[s.Namespaces[i].Name] = s.Namespaces[i].Labels
	}
	for i := range s.Claims {
		w.claims[[2]string{s.Claims[i].Namespace, s.Claims[i].Name}] = &s.Claims[i]
	}
	for i := range s.Volumes {
		w.volumes[s.Volumes[i].Name] = &s.Volumes[i]
	}
	for i := range s.Pods {
		object := &s.Pods[i]
		if object.DeletionTimestamp != nil && object.Spec.NodeName != "" && !Finished(object) {
			// It counts for nothing but the room that it takes until it is gone.
			if n := w.byName[object.Spec.NodeName]; n != nil {
				requests := RequestsOf(object)
				n.request(&requests, 1)
			}
			continue
		}
		if Live(object) {
			w.add(&Pod{Object: object, Node: w.byName[object.Spec.NodeName], Requests: RequestsOf(object)})
		} else if object.Status.Phase == corev1.PodSucceeded {
			w.hasSucceeded(object)
		}
	}
	for i := range s.PodGroups {
		w.addGroup(&s.PodGroups[i])
	}
	w.workloads = newWorkloads(s)
	w.buildPolicies()
	w.buildHolds()
	return w
}

// Finished tells whether a pod has ended.
func Finished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// RequestsOf is what a pod takes from its node, as kube-scheduler accounts for it, and one pod.
func RequestsOf(pod *corev1.Pod) ledger.Resources {
	r := ledger.ResourcesOf(resource.PodRequests(pod, resource.PodResourcesOptions{}))
	r.Pods = 1
	return r
}

// Node returns a node by its name, nil when there is none.
func (w *World) Node(name string) *Node { return w.byName[name] }

// Zones returns the names of the zones with nodes that are not lost, in order. Nodes without a zone are in "".
func (w *World) Zones() []string {
	zones := map[string]bool{}
	for _, n := range w.Nodes {
		if !n.Lost {
			zones[n.Zone] = true
		}
	}
	return slices.Sorted(maps.Keys(zones))
}

// Find returns a pod by its namespace and name, nil when there is none that counts.
func (w *World) Find(namespace, name string) *Pod {
	for _, p := range w.places[namespace] {
		if p.Object.Name == name {
			return p
		}
	}
	return nil
}

// In returns the pods of a namespace, all pods when it is empty.
func (w *World) In(namespace string) []*Pod {
	if namespace == "" {
		return w.Pods
	}
	return w.places[namespace]
}

// Add takes in a pod that waits.
func (w *World) Add(object *corev1.Pod) *Pod {
	p := &Pod{Object: object, Requests: RequestsOf(object)}
	w.add(p)
	return p
}

func (w *World) add(p *Pod) {
	w.Pods = append(w.Pods, p)
	namespace := p.Object.Namespace
	w.places[namespace] = append(w.places[namespace], p)
	for key, value := range p.Object.Labels {
		at := labelKey{namespace, key, value}
		w.byLabel[at] = append(w.byLabel[at], p)
	}
	if gang := p.Gang(); gang != "" {
		w.members[gang] = append(w.members[gang], p)
	}
	if n := p.Node; n != nil {
		w.Bind(p, n)
	}
	w.mentionAll(p.Object)
	w.bear(p)
}

// Bind gives a waiting pod a node.
func (w *World) Bind(p *Pod, n *Node) {
	p.Node = n
	n.pods = append(n.pods, p)
	n.request(&p.Requests, 1)
}

// Unbind takes a pod from its node; it waits again.
func (w *World) Unbind(p *Pod) {
	if n := p.Node; n != nil {
		if i := slices.Index(n.pods, p); i >= 0 {
			last := len(n.pods) - 1
			n.pods[i] = n.pods[last]
			n.pods[last], n.pods = nil, n.pods[:last]
		}
		n.request(&p.Requests, -1)
		p.Node = nil
	}
}

// Lose takes nodes away, and returns the pods that were on them. Every pod is without a node then.
func (w *World) Lose(lost func(*Node) bool) []*Pod {
	for _, n := range w.Nodes {
		n.Lost = n.Lost || lost(n)
	}
	var out []*Pod
	for _, p := range w.Pods {
		if p.Node != nil && p.Node.Lost {
			out = append(out, p)
			w.Unbind(p)
		}
	}
	clear(w.classes)
	clear(w.judged)
	w.loseHolds()
	w.observeZones()
	return out
}

// Remove forgets pods that wait: nobody makes them again.
func (w *World) Remove(gone map[*Pod]bool) {
	drop := func(p *Pod) bool { return gone[p] }
	w.Pods = slices.DeleteFunc(w.Pods, drop)
	for p := range gone {
		if gang := p.Gang(); gang != "" {
			w.members[gang] = slices.DeleteFunc(w.members[gang], drop)
		}
		namespace := p.Object.Namespace
		w.places[namespace] = slices.DeleteFunc(w.places[namespace], drop)
		for key, value := range p.Object.Labels {
			at := labelKey{namespace, key, value}
			w.byLabel[at] = slices.DeleteFunc(w.byLabel[at], drop)
		}
	}
}

// controllerOf returns the owner reference of the controller, nil when there is none.
func controllerOf(object metav1.Object) *metav1.OwnerReference { return metav1.GetControllerOf(object) }
