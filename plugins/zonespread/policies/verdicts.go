package policies

import (
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/zonespread/policy"
)

// Verdicts are what the policies of one pod say about every node. They may be read by any number of goroutines; Add needs
// them for itself. The nil Verdicts let every node pass.
type Verdicts struct {
	namespace string
	rows      []row
}

// row is one policy of the pod.
type row struct {
	applied   *applied
	table     *policy.Table
	selector  labels.Selector
	inclusion *inclusion
	refusals  []atomic.Pointer[fwk.Status] // by the table's slot; made when a node needs them
}

// Judge asks all policies of the pod about all zones. It returns nil for a pod without policies. comparisonOperators is as
// in Direct.
func (s *Policies) Judge(pod *v1.Pod, counter Counter, comparisonOperators bool) *Verdicts {
	selected := s.of(pod)
	if len(selected) == 0 {
		return nil
	}
	start := time.Now()
	v := &Verdicts{namespace: pod.Namespace, rows: make([]row, len(selected))}
	questions := make([]policy.Question, len(selected))
	for i, a := range selected {
		q := a.query(pod)
		v.rows[i] = row{applied: a, selector: q.Selector, inclusion: newInclusion(&q, comparisonOperators)}
		questions[i] = policy.Question{Domains: counter.Domains(q), Self: true}
	}
	s.completeLocking(pod, selected, questions)
	for i, a := range selected {
		v.rows[i].judged(a.policy.Judge(questions[i]))
	}
	evaluationDuration.Observe(time.Since(start).Seconds())
	return v
}

// judged sets the row's table.
func (r *row) judged(t *policy.Table) {
	r.table = t
	r.refusals = make([]atomic.Pointer[fwk.Status], t.Zones()+1)
}

// query returns what a policy has to be told about a pod's surroundings.
func (a *applied) query(pod *v1.Pod) Query {
	return Query{
		Pod: pod, Selector: a.policy.SelectorFor(pod.Labels), TopologyKey: a.policy.TopologyKey(),
		HonorAffinity: a.policy.HonorsAffinity(), HonorTaints: a.policy.HonorsTaints(),
	}
}

// completeLocking adds to the questions what is kept about the policies.
func (s *Policies) completeLocking(pod *v1.Pod, selected []*applied, questions []policy.Question) {
	shape := ""
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	for i, a := range selected {
		// The entry may have a newer policy by now. This pod is still judged by the one that it was found with:
		// the change wakes it.
		e := a.entry
		if shape == "" && e.machine.KnowsShapes() {
			shape = policy.Shape(pod)
		}
		questions[i].View = e.machine.View(shape, now)
		if e.policy == nil {
			questions[i].Replicas = 1
			continue
		}
		questions[i].Replicas = a.policy.Replicas(s.demandLocked(e, pod), pod.Labels)
	}
}

// Clone returns verdicts that can be changed without a change to these.
func (v *Verdicts) Clone() *Verdicts {
	if v == nil {
		return nil
	}
	c := &Verdicts{namespace: v.namespace, rows: append([]row(nil), v.rows...)}
	for i := range c.rows {
		c.rows[i].judged(c.rows[i].table.Clone())
	}
	return c
}

// Hard tells whether some node may be refused, so that Filter has to ask.
func (v *Verdicts) Hard() bool {
	if v == nil {
		return false
	}
	for i := range v.rows {
		if v.rows[i].applied.policy.Hard() {
			return true
		}
	}
	return false
}

// Add changes the verdicts as if delta pods like the given one came to the node, or went when delta is negative.
func (v *Verdicts) Add(pod *v1.Pod, node *v1.Node, delta int64) {
	// A terminating pod was not counted.
	if v == nil || node == nil || pod.DeletionTimestamp != nil || pod.Namespace != v.namespace {
		return
	}
	for i := range v.rows {
		r := &v.rows[i]
		zone, ok := node.Labels[r.applied.policy.TopologyKey()]
		if ok && r.selector.Matches(labels.Set(pod.Labels)) {
			r.table.Add(zone, delta, r.inclusion.eligible(node))
			clear(r.refusals)
		}
	}
}

// Check returns the refusal of a node, and nil when every policy lets the pod go there. It allocates nothing but one
// refusal per policy and zone. All nodes of a zone share it: since the framework writes to the statuses that it gets, it
// must be given a copy.
func (v *Verdicts) Check(node *v1.Node) *fwk.Status {
	if v == nil {
		return nil
	}
	for i := range v.rows {
		if rule := v.rows[i].table.Check(node.Labels); !rule.OK() {
			return v.rows[i].refusal(rule, node.Labels)
		}
	}
	return nil
}

func (r *row) refusal(rule policy.Rule, nodeLabels map[string]string) *fwk.Status {
	slot := r.table.Slot(nodeLabels)
	if slot >= 0 {
		if status := r.refusals[slot].Load(); status != nil {
			return status
		}
	}
	code := fwk.UnschedulableAndUnresolvable
	if rule.Resolvable() {
		code = fwk.Unschedulable
	}
	status := fwk.NewStatus(code, r.table.MessageFor(nodeLabels))
	if slot >= 0 {
		r.refusals[slot].Store(status)
	}
	return status
}

// Scores returns a score from 0 to fwk.MaxScore for each node, which are those that passed all filters: the mean over
// the pod's policies, 0 for one whose topology key the node lacks.
func (v *Verdicts) Scores(nodes []*v1.Node) []int64 {
	scores := make([]int64, len(nodes))
	if v == nil || len(nodes) == 0 {
		return scores
	}
	for i := range v.rows {
		key := v.rows[i].applied.policy.TopologyKey()
		var zones zoneNumbers
		number := make([]int, len(nodes))
		for n, node := range nodes {
			number[n] = -1
			if zone, ok := node.Labels[key]; ok {
				number[n] = zones.of(zone)
			}
		}
		byZone := v.rows[i].table.Scores(zones.names)
		for n := range nodes {
			if number[n] >= 0 {
				scores[n] += byZone[number[n]]
			}
		}
	}
	for n := range scores {
		scores[n] /= int64(len(v.rows))
	}
	return scores
}

// zoneNumbers numbers zones as they come. They are few in most clusters, where comparing them all is faster than a map.
type zoneNumbers struct {
	names []string
	index map[string]int // once they are many
}

func (z *zoneNumbers) of(zone string) int {
	const few = 8
	if z.index == nil {
		for i, name := range z.names {
			if name == zone {
				return i
			}
		}
		z.names = append(z.names, zone)
		if len(z.names) > few {
			z.index = make(map[string]int, 2*few)
			for i, name := range z.names {
				z.index[name] = i
			}
		}
		return len(z.names) - 1
	}
	i, ok := z.index[zone]
	if !ok {
		i = len(z.names)
		z.index[zone] = i
		z.names = append(z.names, zone)
	}
	return i
}
