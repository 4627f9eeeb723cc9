package world

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/plugins/zonespread/policy"
)

// Policy is a ZoneSpreadPolicy with the memory of its zones.
type Policy struct {
	Object *v1alpha1.ZoneSpreadPolicy
	// Compiled is nil when the scheduler does not accept the policy; Errors then says why.
	Compiled *policy.Policy
	Errors   field.ErrorList

	machine *policy.Zones
}

func (w *World) buildPolicies() {
	for i := range w.Snapshot.Policies {
		object := &w.Snapshot.Policies[i]
		if object.DeletionTimestamp == nil {
			w.AddPolicy(object)
		}
	}
	w.observeZones()
}

// AddPolicy takes in a policy.
func (w *World) AddPolicy(object *v1alpha1.ZoneSpreadPolicy) *Policy {
	w.mentionPolicy(object)
	p := &Policy{Object: object}
	p.Compiled, p.Errors = policy.Compile(object)
	if p.Compiled != nil {
		p.machine = policy.NewZones(p.Compiled, object.Status.Zones)
		p.machine.ObserveNodes(w.Now, w.zoneNodes(p.Compiled.TopologyKey()))
	}
	w.policies = append(w.policies, p)
	slices.SortStableFunc(w.policies, func(a, b *Policy) int {
		return cmp.Or(cmp.Compare(a.Object.Namespace, b.Object.Namespace), cmp.Compare(a.Object.Name, b.Object.Name))
	})
	return p
}

// Policies returns all policies, by namespace and name.
func (w *World) Policies() []*Policy { return w.policies }

// PoliciesOf returns the policies that are applied to a pod.
func (w *World) PoliciesOf(pod *corev1.Pod) []*Policy {
	var out []*Policy
	for _, p := range w.policies {
		if p.Compiled != nil && p.Object.Namespace == pod.Namespace && p.Compiled.Selects(labels.Set(pod.Labels)) {
			out = append(out, p)
		}
	}
	return out
}

// longAgo is before any downAfter: what comes of a loss is shown as it is when zones without a node are closed.
const longAgo = 30 * 24 * time.Hour

// observeZones tells the policies which zones have nodes.
func (w *World) observeZones() {
	byKey := map[string][]policy.ZoneNodes{}
	for _, p := range w.policies {
		if p.Compiled == nil {
			continue
		}
		key := p.Compiled.TopologyKey()
		if _, ok := byKey[key]; !ok {
			byKey[key] = w.zoneNodes(key)
		}
		p.machine.ObserveNodes(w.Now, byKey[key])
	}
}

func (w *World) zoneNodes(key string) []policy.ZoneNodes {
	zones := map[string]*policy.ZoneNodes{}
	var order []string
	for _, n := range w.Nodes {
		zone, ok := domain(n, key)
		if !ok {
			continue
		}
		z := zones[zone]
		if z == nil {
			z = &policy.ZoneNodes{Name: zone}
			zones[zone] = z
			order = append(order, zone)
		}
		z.Nodes++
		if n.Lost {
			z.ClosedSince = w.Now.Add(-longAgo)
		} else if ready, since := Ready(n.Object); ready {
			z.Open++
		} else if since.After(z.ClosedSince) {
			z.ClosedSince = since
		}
	}
	out := make([]policy.ZoneNodes, 0, len(order))
	for _, zone := range order {
		z := zones[zone]
		if z.Open > 0 {
			z.ClosedSince = time.Time{}
		}
		out = append(out, *z)
	}
	return out
}

// Ready tells whether a node is ready, and since when.
func Ready(node *corev1.Node) (bool, time.Time) {
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue, c.LastTransitionTime.Time
		}
	}
	return false, time.Time{}
}

// selected returns the pods that a policy selects.
func (w *World) selected(p *Policy) []*Pod {
	namespace := p.Compiled.Namespace()
	candidates := w.places[namespace]
	if key, values := p.Compiled.Lookup(); key != "" {
		candidates = nil
		for _, value := range values {
			candidates = append(candidates, w.byLabel[labelKey{namespace, key, value}]...)
		}
	}
	var out []*Pod
	for _, pod := range candidates {
		if p.Compiled.Selects(labels.Set(pod.Object.Labels)) {
			out = append(out, pod)
		}
	}
	return out
}

// Status computes what the scheduler would report of a policy. waiting is how many pods it holds up.
func (w *World) Status(p *Policy, waiting int) v1alpha1.ZoneSpreadPolicyStatus {
	if p.Compiled == nil {
		return policy.Rejected(p.Object, p.Errors, w.Now)
	}
	o := w.observe(p)
	o.Waiting = int64(waiting)
	return p.Compiled.Status(p.machine, o, p.Object.Status, w.Now)
}

// judge makes the table of a policy for a class of pods.
func (w *World) judge(p *Policy, c *Class) *ruled {
	pod := c.pod
	podLabels := labels.Set(pod.Labels)
	owner := w.workloadOf(pod)
	q := policy.Question{
		Replicas: p.Compiled.Replicas(&owner, int64(len(w.selected(p)))), Typical: true,
		View: p.machine.View(w.Now, policy.RequestsOf(pod)),
	}
	held := p.Compiled.HeldFor(&owner, podLabels)
	index := map[string]int{}
	key := p.Compiled.TopologyKey()
	eligible := make([]bool, len(w.Nodes))
	for i, n := range w.Nodes {
		zone, ok := domain(n, key)
		if !ok || n.Lost {
			continue
		}
		at, seen := index[zone]
		if !seen {
			at = len(q.Domains)
			index[zone] = at
			q.Domains = append(q.Domains, policy.Domain{Name: zone, Excluded: true})
		}
		admitted := !p.Compiled.HonorsAffinity() || c.admitted(i)
		eligible[i] = admitted && (!p.Compiled.HonorsTaints() || c.tolerated(i))
		q.Domains[at].Excluded = q.Domains[at].Excluded && !admitted
		q.Domains[at].Eligible = q.Domains[at].Eligible || eligible[i]
	}
	for _, other := range w.matching(pod.Namespace, held.All) {
		if other.Node == nil {
			continue
		}
		if zone, ok := domain(other.Node, key); ok && held.Counts(labels.Set(other.Object.Labels)) {
			q.Domains[index[zone]].Held++
		}
	}
	for _, other := range w.matching(pod.Namespace, p.Compiled.SelectorFor(podLabels)) {
		if other.Node == nil {
			continue
		}
		zone, ok := domain(other.Node, key)
		if !ok {
			continue
		}
		at := index[zone]
		q.Domains[at].AllPods++
		if eligible[other.Node.index] {
			q.Domains[at].Pods++
		}
	}
	r := w.ruledBy(p.Compiled.Judge(q))
	for i := range q.Domains {
		r.pods[q.Domains[i].Name] = q.Domains[i].AllPods
	}
	return r
}
