package plan_test

import (
	"fmt"
	"iter"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/permitgate/plan"
)

// cluster is a plan.Cluster of nodes and the pods on them.
type cluster struct {
	nodes []*v1.Node
	pods  map[string][]*v1.Pod
}

func newCluster(nodes ...*v1.Node) *cluster {
	return &cluster{nodes: nodes, pods: map[string][]*v1.Pod{}}
}

func (c *cluster) Len() int            { return len(c.nodes) }
func (c *cluster) Node(i int) *v1.Node { return c.nodes[i] }
func (c *cluster) run(node string, pods ...*v1.Pod) *cluster {
	c.pods[node] = append(c.pods[node], pods...)
	return c
}

func (c *cluster) Free(i int, names []v1.ResourceName, into []int64) {
	node := c.nodes[i]
	for j, name := range names {
		into[j] = value(name, node.Status.Allocatable[name])
		for _, pod := range c.pods[node.Name] {
			into[j] -= requestOf(pod, name)
		}
	}
}

func (c *cluster) Pods(i int) iter.Seq[*v1.Pod] { return slices.Values(c.pods[c.nodes[i].Name]) }

func (c *cluster) PortTaken(i int, port *v1.ContainerPort) bool {
	for _, pod := range c.pods[c.nodes[i].Name] {
		for _, container := range pod.Spec.Containers {
			for _, p := range container.Ports {
				if p.HostPort == port.HostPort {
					return true
				}
			}
		}
	}
	return false
}

func value(name v1.ResourceName, q resource.Quantity) int64 {
	if name == v1.ResourceCPU {
		return q.MilliValue()
	}
	return q.Value()
}

// requestOf is what a pod of these tests, which has one container, takes of a resource.
func requestOf(pod *v1.Pod, name v1.ResourceName) int64 {
	if name == v1.ResourcePods {
		return 1
	}
	return value(name, pod.Spec.Containers[0].Resources.Requests[name])
}

// node makes a node with so many CPUs in a zone that is the first letter of its name.
func node(name string, cpu int64) *v1.Node {
	return &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			v1.LabelHostname: name, v1.LabelTopologyZone: name[:1],
		}},
		Status: v1.NodeStatus{Allocatable: v1.ResourceList{
			v1.ResourceCPU:    *resource.NewQuantity(cpu, resource.DecimalSI),
			v1.ResourceMemory: resource.MustParse("64Gi"),
			v1.ResourcePods:   *resource.NewQuantity(100, resource.DecimalSI),
		}},
	}
}

// pod makes a pod that asks for so many CPUs.
func pod(name string, cpu int64, change ...func(p *v1.Pod)) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), Labels: map[string]string{"job": "train"}},
		Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main", Resources: v1.ResourceRequirements{Requests: v1.ResourceList{
			v1.ResourceCPU: *resource.NewQuantity(cpu, resource.DecimalSI),
		}}}}},
	}
	for _, f := range change {
		f(p)
	}
	return p
}

func pods(n int, name string, cpu int64, change ...func(p *v1.Pod)) []*v1.Pod {
	all := make([]*v1.Pod, n)
	for i := range all {
		all[i] = pod(fmt.Sprintf("%s-%d", name, i), cpu, change...)
	}
	return all
}

func members(pods ...*v1.Pod) []plan.Member {
	all := make([]plan.Member, len(pods))
	for i, p := range pods {
		all[i].Pod = p
	}
	return all
}

// request asks for a plan of all the pods.
func request(c *cluster, pods ...*v1.Pod) plan.Request {
	return plan.Request{Members: members(pods...), Need: len(pods), Cluster: c}
}

var job = &metav1.LabelSelector{MatchLabels: map[string]string{"job": "train"}}

// spread adds a constraint over the pods of the job.
func spread(key string, maxSkew int32, action v1.UnsatisfiableConstraintAction, change ...func(c *v1.TopologySpreadConstraint)) func(p *v1.Pod) {
	return func(p *v1.Pod) {
		c := v1.TopologySpreadConstraint{TopologyKey: key, MaxSkew: maxSkew, WhenUnsatisfiable: action, LabelSelector: job}
		for _, f := range change {
			f(&c)
		}
		p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, c)
	}
}

// apart and together add required anti-affinity and affinity to the pods of the job.
func apart(key string) func(p *v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{LabelSelector: job, TopologyKey: key}},
		}}
	}
}

func together(key string) func(p *v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.Affinity = &v1.Affinity{PodAffinity: &v1.PodAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{LabelSelector: job, TopologyKey: key}},
		}}
	}
}

// byNode counts the slots of a plan on each node, byZone in each zone.
func byNode(r plan.Result) map[string]int {
	count := map[string]int{}
	for _, s := range r.Slots {
		count[s.Node]++
	}
	return count
}

func byZone(r plan.Result) map[string]int {
	count := map[string]int{}
	for _, s := range r.Slots {
		count[s.Node[:1]]++
	}
	return count
}
