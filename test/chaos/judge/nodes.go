package judge

import (
	"net/http"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/resource"

	"zonewise.dev/test/chaos/history"
)

// amount is what pods ask for, or what a node has: CPU in thousandths, memory in bytes, and places for pods.
type amount struct{ cpu, memory, pods int64 }

func (a amount) plus(b amount) amount {
	return amount{a.cpu + b.cpu, a.memory + b.memory, a.pods + b.pods}
}

func (a amount) minus(b amount) amount {
	return amount{a.cpu - b.cpu, a.memory - b.memory, a.pods - b.pods}
}

func (a amount) times(n int64) amount { return amount{a.cpu * n, a.memory * n, a.pods * n} }

func (a amount) fits(room amount) bool {
	return a.cpu <= room.cpu && a.memory <= room.memory && a.pods <= room.pods
}

// into is how often a fits.
func (a amount) into(room amount) int64 {
	n := room.pods / max(a.pods, 1)
	if a.cpu > 0 {
		n = min(n, room.cpu/a.cpu)
	}
	if a.memory > 0 {
		n = min(n, room.memory/a.memory)
	}
	return max(n, 0)
}

func listed(list v1.ResourceList) amount {
	return amount{list.Cpu().MilliValue(), list.Memory().Value(), list.Pods().Value()}
}

func requests(pod *v1.Pod) amount {
	a := listed(resource.PodRequests(pod, resource.PodResourcesOptions{}))
	a.pods = 1
	return a
}

// taken is what the pods that are bound to a node at a revision ask for.
func taken(x *history.Index, node string, revision int64) amount {
	var sum amount
	for _, l := range x.OnNode[node] {
		if l.BoundAt(revision) {
			sum = sum.plus(requests(l.Pod))
		}
	}
	return sum
}

// unknownFor is how long after its bind a scheduler may not know of a pod whose bind is said to have failed.
const unknownFor = 5 * time.Second

// unknownBinds are the binds that the API server has done and said to have failed: it says so when it loses etcd
// meanwhile, by the code of a conflict. kube-scheduler gives their room to others until their events come.
func unknownBinds(x *history.Index) map[types.UID]bool {
	unknown := map[types.UID]bool{}
	for i := range x.Requests {
		if q := &x.Requests[i]; q.Binds() && q.Code == http.StatusConflict && !q.DryRun {
			l := x.ByUID[q.UID]
			unknown[q.UID] = l != nil && l.Node() == q.Node && !l.Bound.Time.Before(q.Received)
		}
	}
	for i := range x.Requests {
		if q := &x.Requests[i]; q.Binds() && q.Accepted() {
			delete(unknown, q.UID)
		}
	}
	return unknown
}

// overcommitted: no bind takes a node over what it has, but for pods of which the scheduler has been told that their binds
// had failed. A node that is gone has no room to judge by.
func overcommitted(x *history.Index, v *Verdict) {
	unknown := unknownBinds(x)
	for _, l := range x.Lives {
		if l.Bound == history.Never {
			continue
		}
		node, there := history.At(x.Nodes[l.Node()], l.Bound.Revision)
		if !there {
			continue
		}
		v.Judged++
		sum, has := taken(x, l.Node(), l.Bound.Revision), listed(node.Object.Status.Allocatable)
		for _, other := range x.OnNode[l.Node()] {
			if unknown[other.Pod.UID] && other.BoundAt(l.Bound.Revision) && l.Bound.Time.Sub(other.Bound.Time) < unknownFor {
				sum = sum.minus(requests(other.Pod))
			}
		}
		if !sum.fits(has) {
			v.findf(l.Bound, "pod %s takes node %s to %+v of %+v, bound by %q", l.Pod.Name, l.Node(), sum, has, l.Writer)
		}
	}
}

// boundTwice: a pod is bound once, and stays where it is.
func boundTwice(x *history.Index, v *Verdict) {
	for i := range x.Changes {
		c := &x.Changes[i]
		if c.Pod == nil || c.Pod.Spec.NodeName == "" {
			continue
		}
		v.Judged++
		if l := x.ByUID[c.Pod.UID]; l.Node() != c.Pod.Spec.NodeName {
			v.findf(history.Moment{Revision: c.Revision, Time: c.Time}, "pod %s is on node %s, it was bound to %s", c.Pod.Name, c.Pod.Spec.NodeName, l.Node())
		}
	}
	bound := map[string]*history.Request{}
	for i := range x.Requests {
		q := &x.Requests[i]
		if !q.Binds() || !q.Accepted() {
			continue
		}
		if first := bound[string(q.UID)]; first != nil {
			v.findf(history.Moment{Time: q.Answered}, "pod %s was bound to %s by %s and to %s by %s", q.Name, first.Node, first.Writer, q.Node, q.Writer)
		}
		bound[string(q.UID)] = q
	}
}
