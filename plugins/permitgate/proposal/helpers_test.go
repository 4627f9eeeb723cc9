package proposal_test

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/permitgate/proposal"
	"zonewise.dev/test/build"
)

// cluster is a proposal.Cluster in memory, with amounts by resource.
type cluster struct {
	nodes []*v1.Node
	free  []map[v1.ResourceName]int64 // absent: not counted
	kept  func(at int, pod *v1.Pod) map[v1.ResourceName]int64
	asked int
}

func (c *cluster) Len() int             { return len(c.nodes) }
func (c *cluster) Node(at int) *v1.Node { return c.nodes[at] }
func (c *cluster) Free(at int, names []v1.ResourceName, into []int64) {
	c.asked++
	for j, name := range names {
		n, counted := c.free[at][name]
		if !counted {
			n = proposal.Unlimited
		}
		into[j] = n
	}
}

func (c *cluster) Kept(at int, pod *v1.Pod, names []v1.ResourceName, into []int64) {
	if c.kept == nil {
		return
	}
	for j, name := range names {
		into[j] += c.kept(at, pod)[name]
	}
}

// add adds a node with so many CPUs and room for pods.
func (c *cluster) add(cpu, pods int64, labels ...string) *v1.Node {
	name := fmt.Sprintf("n%d", len(c.nodes))
	node := build.Node(name, "", fmt.Sprint(cpu))
	for i := 0; i < len(labels); i += 2 {
		node.Labels[labels[i]] = labels[i+1]
	}
	c.nodes = append(c.nodes, node)
	c.free = append(c.free, map[v1.ResourceName]int64{v1.ResourceCPU: cpu * 1000, v1.ResourcePods: pods})
	return node
}

// newPod makes a pod that asks for CPUs and other resources.
func newPod(cpu int64, change ...func(*v1.Pod)) *v1.Pod {
	return build.Pod("", fmt.Sprint(cpu), slices.Insert(change, 0, build.App("train"))...)
}

func asking(name v1.ResourceName, n int64) func(*v1.Pod) {
	return build.Request(name, fmt.Sprint(n))
}

// class makes a class of n members.
func class(name string, n int, pod *v1.Pod) proposal.Class {
	c := proposal.Class{Pod: pod}
	for i := range n {
		c.Members = append(c.Members, types.UID(fmt.Sprintf("%s-%d", name, i)))
	}
	return c
}

// apart keeps pods like this one off its node, or its zone.
func apart(key string) func(*v1.Pod) {
	return func(pod *v1.Pod) {
		pod.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{
				TopologyKey: key, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "train"}},
			}},
		}}
	}
}

// slot is a member and the node that is proposed to it.
type slot struct {
	member    types.UID
	class, at int
}

// slotsOf lists the members with a node.
func slotsOf(r *proposal.Request, result proposal.Result) (slots []slot) {
	for c, hint := range result.Hints {
		for m := range hint.Members {
			slots = append(slots, slot{r.Classes[c].Members[m], c, hint.Nodes[m]})
		}
	}
	return slots
}
