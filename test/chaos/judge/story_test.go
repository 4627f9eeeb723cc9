package judge

import (
	"fmt"
	"net/http"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/test/chaos/history"
)

// start is when all stories begin.
var start = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// story forges a record: three nodes of 4 CPUs, a1, b1 and c1, and what a test adds at its times.
type story struct {
	record   *history.Record
	now      time.Time
	revision int64
	pods     map[string]*v1.Pod
}

func newStory() *story {
	s := &story{record: &history.Record{}, now: start, pods: map[string]*v1.Pod{}}
	for _, zone := range []string{"a", "b", "c"} {
		s.node(zone+"1", zone)
	}
	return s
}

// at goes to a time in seconds.
func (s *story) at(seconds float64) *story {
	s.now = start.Add(time.Duration(seconds * float64(time.Second)))
	return s
}

func (s *story) add(c history.Change) *story {
	s.revision++
	c.Revision, c.Time = s.revision, s.now
	s.record.Changes = append(s.record.Changes, c)
	return s
}

func (s *story) node(name, zone string) *story {
	return s.add(history.Change{Node: &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{v1.LabelTopologyZone: zone}},
		Status: v1.NodeStatus{
			Allocatable: v1.ResourceList{v1.ResourceCPU: resource.MustParse("4"), v1.ResourceMemory: resource.MustParse("8Gi"), v1.ResourcePods: resource.MustParse("10")},
			Conditions:  []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}},
		},
	}})
}

type podOption func(*v1.Pod)

func ofPriority(priority int32) podOption {
	return func(p *v1.Pod) { p.Spec.Priority = &priority }
}

func inGang(name string) podOption {
	return func(p *v1.Pod) { p.Labels[schedulingv1alpha1.PodGroupLabel] = name }
}

func spreadOver(app string) podOption {
	return func(p *v1.Pod) {
		p.Labels["app"] = app
		p.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{{
			MaxSkew: 1, TopologyKey: v1.LabelTopologyZone, WhenUnsatisfiable: v1.DoNotSchedule,
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
		}}
	}
}

func labelled(app string) podOption { return func(p *v1.Pod) { p.Labels["app"] = app } }

// pod creates one.
func (s *story) pod(name, cpu string, options ...podOption) *story {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name), Labels: map[string]string{}},
		Spec: v1.PodSpec{Containers: []v1.Container{{
			Name: "main", Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}},
		}}},
	}
	for _, o := range options {
		o(p)
	}
	s.pods[name] = p
	return s.add(history.Change{Pod: p})
}

// bind binds a pod; its changes and requests are the writer's.
func (s *story) bind(name, node, writer string) *story {
	p := s.pods[name].DeepCopy()
	p.Spec.NodeName = node
	s.pods[name] = p
	s.record.Requests = append(s.record.Requests, history.Request{
		Received: s.now, Answered: s.now, Writer: writer, Verb: "create", Resource: "pods", Subresource: "binding", Name: name, UID: p.UID, Node: node, Code: 201,
	})
	return s.add(history.Change{Pod: p, Writer: writer})
}

// bound creates a pod and binds it.
func (s *story) bound(name, cpu, node, writer string, options ...podOption) *story {
	return s.pod(name, cpu, options...).bind(name, node, writer)
}

// conflict has the API server say that it has not done what was asked last.
func (s *story) conflict() *story {
	s.record.Requests[len(s.record.Requests)-1].Code = http.StatusConflict
	return s
}

// received sets when the API server began to read the request of the last change.
func (s *story) received(seconds float64) *story {
	s.record.Changes[len(s.record.Changes)-1].Received = start.Add(time.Duration(seconds * float64(time.Second)))
	return s
}

func (s *story) delete(name, writer string) *story {
	return s.add(history.Change{Pod: s.pods[name], Deleted: true, Writer: writer})
}

func (s *story) group(name string, minMember int32) *story {
	return s.add(history.Change{Group: &schedulingv1alpha1.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name)}, Spec: schedulingv1alpha1.PodGroupSpec{MinMember: minMember},
	}})
}

// policy allows the pods of an app a number in each zone.
func (s *story) policy(app string, maxPerZone int32) *story {
	p := &v1alpha1.ZoneSpreadPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: app, UID: types.UID(app), Generation: s.revision}}
	p.Spec.PodSelector.MatchLabels = map[string]string{"app": app}
	p.Spec.MaxPerZone = ptr.To(intstr.FromInt32(maxPerZone))
	return s.add(history.Change{Policy: p})
}

// slots are those of a reservation for an app, of a CPU each, on a node.
func (s *story) slots(app, node string, slots, used int64) *story {
	r := &v1alpha1.ZoneReservation{ObjectMeta: metav1.ObjectMeta{Name: app, UID: types.UID(app)}}
	r.Spec.Owners = []v1alpha1.ReservationOwner{{Namespace: "shop", PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}}}
	r.Spec.Slot.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}
	r.Status.Zones = []v1alpha1.ReservationZoneStatus{{Nodes: []v1alpha1.ReservationNodeStatus{{Name: node, Slots: slots, Used: used}}}}
	return s.add(history.Change{Reservation: r})
}

// leads has a replica take or renew the lease; its identity is not its name.
func (s *story) leads(writer string) *story {
	holder := "host_" + writer
	s.record.Requests = append(s.record.Requests, history.Request{
		Received: s.now, Answered: s.now, Writer: writer, Verb: "update", Resource: "leases", Code: 200, Holder: holder, Revision: s.revision + 1,
	})
	return s.add(history.Change{Lease: &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder}}})
}

// patch is one of an object that stays as it was, or not.
func (s *story) patch(writer string, revision int64) *story {
	s.record.Requests = append(s.record.Requests, history.Request{
		Received: s.now, Answered: s.now, Writer: writer, Verb: "patch", Resource: "zonereservations", Subresource: "status", Code: 200, Revision: revision,
	})
	return s
}

// kubeSchedulers makes the last request one for a condition of kube-scheduler's own.
func (s *story) kubeSchedulers() *story {
	s.record.Requests[len(s.record.Requests)-1].KubeSchedulers = true
	return s
}

func (s *story) fault(kind string, from, to float64) *story {
	second := func(n float64) time.Time { return start.Add(time.Duration(n * float64(time.Second))) }
	s.record.Faults = append(s.record.Faults, history.Fault{Kind: kind, Began: second(from), Ended: second(to)})
	return s
}

// only keeps the first requests.
func (s *story) only(requests int) *story {
	s.record.Requests = s.record.Requests[:requests]
	return s
}

// left has the leader say at the end that something is left.
func (s *story) left(metric string, value float64) *story {
	s.record.Remains = map[string]float64{metric: value}
	return s
}

// nominated creates a pod that waits with a nomination.
func (s *story) nominated(name, node string) *story {
	return s.pod(name, "1", func(p *v1.Pod) { p.Status.NominatedNodeName = node })
}

// ends closes the record: quiet since a time, settled at another.
func (s *story) ends(quiet, settled float64) *history.Record {
	s.record.Quiet = start.Add(time.Duration(quiet * float64(time.Second)))
	s.record.Settled = start.Add(time.Duration(settled * float64(time.Second)))
	s.record.Judged = s.record.Settled.Add(5 * time.Second)
	left := s.record.Remains
	s.record.Remains, s.record.Goroutines = map[string]float64{}, [2]float64{200, max(210, left["go_goroutines"])}
	for _, name := range nothing {
		s.record.Remains[name] = left[name]
	}
	return s.record
}

// members creates and binds members of a gang.
func (s *story) members(gang string, bound, waiting int) *story {
	for i := range bound + waiting {
		s.pod(fmt.Sprintf("%s-%d", gang, i), "1", inGang(gang))
	}
	for i := range bound {
		s.bind(fmt.Sprintf("%s-%d", gang, i), "a1", "one")
	}
	return s
}
