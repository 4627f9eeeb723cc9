package policy_test

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/plugins/zonespread/policy"
)

// A zone of three is full: the way of a pod through the extension points, and what the timer does. Nine replicas are
// wanted; zones a and b hold three each and zone c two.
func Example() {
	obj := &v1alpha1.ZoneSpreadPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "1"},
		Spec:       v1alpha1.ZoneSpreadPolicySpec{PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
	}
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

	// A policy arrived.
	p, errs := policy.Compile(obj)
	if len(errs) > 0 {
		obj.Status = policy.Rejected(obj, errs, now)
		return
	}
	machine := policy.NewMachine(p, obj.Status.Zones)
	machine.ObserveNodes(now, []policy.ZoneNodes{{Name: "a", Nodes: 2, Ready: 2}, {Name: "b", Nodes: 2, Ready: 2}, {Name: "c", Nodes: 2, Ready: 2}})

	// PreFilter.
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Labels: map[string]string{"app": "web", "pod-template-hash": "1"}}}
	demand := policy.Demand{Owners: []policy.Owner{{UID: "2", TemplateLabels: labels.Set{"app": "web"}, Replicas: 9}}}
	preFilter := func() *policy.Table {
		shape := ""
		if machine.KnowsShapes() {
			shape = policy.Shape(pod)
		}
		return p.Judge(policy.Question{
			Domains:  []policy.Domain{{Name: "a", Pods: 3, Eligible: true}, {Name: "b", Pods: 3, Eligible: true}, {Name: "c", Pods: 2, Eligible: true}},
			Replicas: p.Replicas(demand, pod.Labels),
			Self:     p.Selects(pod.Labels),
			View:     machine.View(shape, now),
		})
	}
	table := preFilter()

	// Filter, for a node of each zone. NodeResourcesFit refuses those of zone c.
	for _, zone := range []string{"a", "c"} {
		node := map[string]string{"topology.kubernetes.io/zone": zone}
		if rule := table.Check(node); !rule.OK() {
			fmt.Println(table.MessageFor(node))
		}
	}

	// PostFilter: what other plugins refused.
	evidence := policy.Gather(func(yield func(string, policy.Outcome) bool) {
		_ = yield("a", policy.NotLookedAt) && // refused by ZoneSpread itself
			yield("b", policy.NotLookedAt) &&
			yield("c", policy.Refused) &&
			yield("c", policy.Refused)
	})
	machine.ObserveAttempt(now, policy.Shape(pod), evidence)

	// The timer.
	deadline, _ := machine.NextDeadline(now)
	fmt.Println("activate waiting pods:", deadline.Wakes, deadline.At.Sub(now))
	now = deadline.At
	table = preFilter()
	fmt.Println(table.Rule("a"), table.Rule("b"), table.Scores([]string{"a", "b"}))

	// The leader writes the status.
	obj.Status = p.Status(machine, policy.Observation{
		Revisions: map[string]map[string]int64{p.Revision(pod.Labels): {"a": 3, "b": 3, "c": 2}},
		Demand:    demand,
	}, obj.Status, now)
	i := slices.IndexFunc(obj.Status.Zones, func(z v1alpha1.ZoneStatus) bool { return z.Name == "c" })
	fmt.Println(obj.Status.Zones[i].State, "since", obj.Status.Zones[i].Since.UTC().Format(time.TimeOnly), "desired", obj.Status.Zones[i].Desired)

	// Output:
	// policy shop/web: zone a holds 3 of 9, share 3.0, maxSkew 1 over zone c with 2 of weight 1
	// activate waiting pods: true 5m0s
	// Pass Pass [100 100]
	// Full since 12:00:00 desired 2
}
