package parity

import (
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"zonewise.dev/apis/v1alpha1"
)

func owned(p *v1.Pod, apiVersion, kind, name string) *v1.Pod {
	p = p.DeepCopy()
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: name, UID: "owner", Controller: ptr.To(true)}}
	return p
}

// defaultObjects are services and owners, some of which select the pods of the clusters.
func defaultObjects() []runtime.Object {
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "default", Name: name} }
	return []runtime.Object{
		&v1.Service{ObjectMeta: meta("foo"), Spec: v1.ServiceSpec{Selector: map[string]string{"foo": ""}}},
		&v1.Service{ObjectMeta: meta("foobar"), Spec: v1.ServiceSpec{Selector: map[string]string{"foo": "", "bar": ""}}},
		&v1.Service{ObjectMeta: meta("nobody"), Spec: v1.ServiceSpec{Selector: map[string]string{"nobody": "here"}}},
		&v1.Service{ObjectMeta: meta("by-hand")},
		&v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "bar"}, Spec: v1.ServiceSpec{Selector: map[string]string{"bar": ""}}},
		&v1.ReplicationController{ObjectMeta: meta("rc"), Spec: v1.ReplicationControllerSpec{Selector: map[string]string{"bar": ""}}},
		&appsv1.ReplicaSet{ObjectMeta: meta("rs"), Spec: appsv1.ReplicaSetSpec{Selector: selects("foo")}},
		&appsv1.ReplicaSet{ObjectMeta: meta("rs-all"), Spec: appsv1.ReplicaSetSpec{Selector: selects()}},
		&appsv1.ReplicaSet{ObjectMeta: meta("rs-nil")},
		&appsv1.StatefulSet{ObjectMeta: meta("ss"), Spec: appsv1.StatefulSetSpec{Selector: selects("bar=", "foo")}},
	}
}

// TestDefaultConstraintsEqualInTree compares pods that get their constraints from the arguments and
// their selectors from the objects that they belong to.
func TestDefaultConstraintsEqualInTree(t *testing.T) {
	settings := map[string]Options{
		"System":       {System: true},
		"List, none":   {},
		"List, hard":   {Constraints: []v1.TopologySpreadConstraint{spread(1, "zone", nil), spread(2, "host", nil)}},
		"List, soft":   {Constraints: []v1.TopologySpreadConstraint{spread(1, "zone", nil, soft), spread(1, "host", nil, soft)}},
		"List, mixed":  {Constraints: []v1.TopologySpreadConstraint{spread(1, "host", nil), spread(3, "zone", nil, soft, taints(honor))}},
		"List, minDom": {Constraints: []v1.TopologySpreadConstraint{spread(1, "zone", nil, minDomains(3), affinity(ignore))}},
	}
	pod := func(words string) *v1.Pod { return incoming(words) }
	incomings := map[string]*v1.Pod{
		"service":                      pod("foo"),
		"two services":                 pod("foo bar"),
		"no service":                   pod("baz"),
		"other namespace":              pod("bar ns:other"),
		"replication controller":       owned(pod("baz"), "v1", "ReplicationController", "rc"),
		"service and RC":               owned(pod("foo"), "v1", "ReplicationController", "rc"),
		"replica set":                  owned(pod("baz"), "apps/v1", "ReplicaSet", "rs"),
		"replica set and service":      owned(pod("foo bar"), "apps/v1", "ReplicaSet", "rs"),
		"replica set of everything":    owned(pod("foo"), "apps/v1", "ReplicaSet", "rs-all"),
		"replica set without selector": owned(pod("foo"), "apps/v1", "ReplicaSet", "rs-nil"),
		"stateful set":                 owned(pod("baz"), "apps/v1", "StatefulSet", "ss"),
		"missing owner":                owned(pod("foo"), "apps/v1", "StatefulSet", "gone"),
		"unknown owner":                owned(pod("foo"), "batch/v1", "Job", "job"),
		"owner of another version":     owned(pod("foo"), "apps/v1beta1", "ReplicaSet", "rs"),
		"own hard constraint":          incoming("foo", spread(1, "zone", selects("foo"))),
		"own soft constraint":          incoming("foo", spread(1, "host", selects("bar"), soft)),
		"by label":                     withNodeSelector(pod("foo"), "foo", "1"),
	}
	graded := 0
	for settingName, options := range settings {
		options.Objects = defaultObjects()
		for clusterName, cluster := range clusters() {
			pair, _ := setUp(t, options, cluster.nodes, cluster.pods)
			for podName, p := range incomings {
				name := settingName + "/" + clusterName + "/" + podName
				for _, keep := range []func(string) bool{nil, func(n string) bool { return n != "x" }} {
					want := pair.requireSame(t, name, p, p, keep)
					graded += want.graded()
				}
			}
		}
	}
	require.Greater(t, graded, 500)
}

// TestShownConstraintsAreNotCounted: a soft constraint that only shows a policy to autoscalers changes no verdict and
// no score, and leaves the pod its default constraints. The in-tree plugin sees the pod without it.
func TestShownConstraintsAreNotCounted(t *testing.T) {
	shown := spread(1, "zone", selects("foo"), soft)
	graded := 0
	for settingName, options := range map[string]Options{
		"System":      {System: true},
		"List, hard":  {Constraints: []v1.TopologySpreadConstraint{spread(1, "host", nil)}},
		"List, soft":  {Constraints: []v1.TopologySpreadConstraint{spread(1, "zone", nil, soft)}},
		"no defaults": {},
	} {
		options.Objects = defaultObjects()
		for clusterName, cluster := range clusters() {
			pair, _ := setUp(t, options, cluster.nodes, cluster.pods)
			for podName, plain := range map[string]*v1.Pod{
				"alone":                          incoming("foo"),
				"beside a hard constraint":       incoming("foo", spread(1, "zone", selects("foo"))),
				"beside a soft one over hosts":   incoming("foo", spread(1, "host", selects("foo"), soft)),
				"behind one over another domain": incoming("foo", spread(2, "foo", selects("foo"), soft)),
			} {
				name := settingName + "/" + clusterName + "/" + podName
				mutated := plain.DeepCopy()
				mutated.Annotations = map[string]string{v1alpha1.ShownToAutoscalersAnnotation: shown.TopologyKey}
				mutated.Spec.TopologySpreadConstraints = append(mutated.Spec.TopologySpreadConstraints, shown)
				want := pair.requireSame(t, name, plain, mutated, nil)
				graded += want.graded()
			}
		}
	}
	require.Greater(t, graded, 50)
}
