package policies

import (
	"cmp"
	"fmt"
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cluster/census"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/internal/feature"
	"zonewise.dev/plugins/zonespread/counted"
	"zonewise.dev/plugins/zonespread/counts"
	"zonewise.dev/plugins/zonespread/policy"
)

// Reader has the policies and the workloads of a cluster. Make one with Read.
type Reader struct {
	census   *census.Census
	policies map[string][]*Policy // by namespace
	// workloads are the top-level owners of pods, by the UIDs of their controllers.
	workloads map[types.UID]policy.Workload
}

// Policy is a policy over zones with what its status remembers of them.
type Policy struct {
	*policy.Policy
	zones *policy.Zones
	live  int64 // pods that it selects
}

// Read reads a cluster. Policies that do not apply, those over another topology key and those that count gangs are left
// out.
func Read(c *census.Census) *Reader {
	r := &Reader{census: c, policies: map[string][]*Policy{}, workloads: map[types.UID]policy.Workload{}}
	r.readPolicies()
	readWorkloads[*appsv1.ReplicaSet](r)
	readWorkloads[*appsv1.StatefulSet](r)
	readWorkloads[*v1.ReplicationController](r)
	readWorkloads[*batchv1.Job](r)
	return r
}

// In returns the policies of a namespace, by name.
func (r *Reader) In(namespace string) []*Policy { return r.policies[namespace] }

func (r *Reader) readPolicies() {
	zoneNodes := policy.NodesByZone(snapshot.List[*v1.Node](r.census.Snapshot), v1.LabelTopologyZone)
	delete(zoneNodes, "") // no zone to the census
	for _, object := range snapshot.Sorted[*v1alpha1.ZoneSpreadPolicy](r.census.Snapshot, "") {
		compiled, errs := policy.Compile(object)
		if len(errs) > 0 || compiled.TopologyKey() != v1.LabelTopologyZone || compiled.GroupBy() != "" {
			continue
		}
		p := &Policy{Policy: compiled, zones: policy.NewZones(compiled, object.Status.Zones)}
		p.zones.ObserveNodes(r.census.Now, zoneNodes)
		for _, pod := range r.census.PodsIn(object.Namespace) {
			if p.Selects(pod.Labels) {
				p.live++
			}
		}
		r.policies[object.Namespace] = append(r.policies[object.Namespace], p)
	}
}

// readWorkloads reads the controllers of one kind, as ZoneSpread does.
func readWorkloads[T interface {
	metav1.Object
	comparable
}](r *Reader) {
	for _, obj := range r.census.Snapshot.Objects() {
		object, ok := obj.(T)
		if !ok {
			continue
		}
		r.workloads[object.GetUID()] = policy.WorkloadOf(object)
	}
}

// Decision is what a policy says about pods like one, once pods are counted.
type Decision struct {
	// Key is equal for pods about which policies decide alike.
	Key string
	// Pods are those that are counted.
	counted.Pods
	// Availability is how the zones take part.
	Availability policy.ZoneAvailability

	policy   *Policy
	pod      *v1.Pod
	workload policy.Workload
}

// Decide begins the decision of a policy about a pod that it selects.
func (r *Reader) Decide(p *Policy, pod *v1.Pod) *Decision {
	owner := types.UID("")
	if over := metav1.GetControllerOfNoCopy(pod); over != nil {
		owner = over.UID
	}
	d := &Decision{policy: p, pod: pod, workload: r.workloads[owner]}
	runs := cmp.Or(d.workload.UID, owner, p.UID())
	d.Availability = p.zones.For(r.census.Now, runs)
	d.Pods = counted.For(p.Policy, &d.workload, pod.Labels, eligibilityOf(p, pod))
	own := types.UID("")
	if p.Caps() || !maps.Equal(d.Availability, p.zones.For(r.census.Now, "")) {
		own = runs
	}
	d.Key = fmt.Sprint("policy ", p.Key(), " ", p.Revision(pod.Labels), " ", own, " ", counts.KeyOf(d.Eligible))
	return d
}

// Counted selects the pods that count.
func (d *Decision) Counted() labels.Selector { return d.policy.CountedFor(d.pod.Labels) }

// Queries are what has to be counted.
func (d *Decision) Queries() []counts.Query {
	return d.Pods.Queries(d.policy.Policy, d.pod, d.Availability)
}

// Table returns the decision, given the answers to the queries.
func (d *Decision) Table(answers []*counts.Table) *policy.Table {
	return d.policy.Evaluate(policy.Input{
		Domains:      d.Answered(d.policy.Policy, d.pod, d.Availability, answers).Domains(d.Availability),
		Replicas:     d.policy.Replicas(&d.workload, d.policy.live),
		Availability: d.Availability,
	})
}

// ChangeBy returns what another pod of the namespace changes about the decision once it is placed. That it counts for
// the skew is certain only if the same nodes are eligible for it.
func (d *Decision) ChangeBy(pod *v1.Pod) (change policy.Change) {
	if d.Selector.Matches(labels.Set(pod.Labels)) && d.admitsLike(pod) {
		change.Pods = 1
	}
	if d.Held.Counts(pod.Labels) {
		change.Held = 1
	}
	return change
}

// admitsLike reports whether all nodes that are eligible for a pod are so for the decision's.
func (d *Decision) admitsLike(pod *v1.Pod) bool {
	return d.Eligible == nil || counts.KeyOf(eligibilityOf(d.policy, pod)) == d.Eligible.Key()
}

func eligibilityOf(p *Policy, pod *v1.Pod) counts.Eligibility {
	return counts.EligibilityOf(pod, p.HonorsAffinity(), p.HonorsTaints(), feature.TolerationOperators())
}
