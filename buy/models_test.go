package buy

import (
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func sized(name, zone, size string, change ...func(*v1.Node)) *v1.Node {
	n := node(name, zone, true)
	n.Labels[v1.LabelHostname] = name
	n.Status.Allocatable = v1.ResourceList{v1.ResourceCPU: resource.MustParse(size)}
	for _, c := range change {
		c(n)
	}
	return n
}

// TestModels: one node of each kind and zone, by what schedulers see of it: the most frequent kinds of each zone.
func TestModels(t *testing.T) {
	nodes := []*v1.Node{
		sized("a1", "a", "4"), sized("a2", "a", "4000m"), sized("a3", "a", "8"),
		sized("a4", "a", "4", func(n *v1.Node) { n.Spec.Taints = []v1.Taint{{Key: "gpu", Effect: v1.TaintEffectNoSchedule}} }),
		sized("a5", "a", "2", func(n *v1.Node) { n.Spec.Unschedulable = true }), sized("a6", "a", "16"),
		sized("b1", "b", "4", func(n *v1.Node) { n.Labels["disk"] = "ssd"; n.Labels["host"] = "b1" }), node("b2", "b", false),
		sized("c", "c", "4"), sized("d", "d", "4"),
	}
	var models []string
	for _, m := range Models(nodes) {
		models = append(models, m.Zone+"/"+m.Node)
	}
	require.Equal(t, []string{"a/a1", "a/a4", "b/b1", "c/c", "d/d", "a/a3"}, models, "a6 is one kind too many")
}
