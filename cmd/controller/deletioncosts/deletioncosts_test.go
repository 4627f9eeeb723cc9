package deletioncosts

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	corev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/cmd/controller/parts"
	"zonewise.dev/test/clitest"
)

func keepSpread(s *v1alpha1.ZoneSpreadPolicySpec) { s.ScaleDownPolicy = v1alpha1.ScaleDownKeepSpread }

// cluster has two nodes in each of the zones a, b and c, and Deployment web with pods on the nodes that are named.
type cluster struct {
	*clitest.Cluster
	policy *v1alpha1.ZoneSpreadPolicy
	add    func(node string) *v1.Pod
}

func newCluster(on ...string) *cluster {
	c := &cluster{Cluster: clitest.New()}
	for _, zone := range []string{"a", "b", "c"} {
		c.Node(zone+"1", zone, "8", "8Gi")
		c.Node(zone+"2", zone, "8", "8Gi")
	}
	c.policy = c.Policy("web", keepSpread)
	c.add = c.Deployment("web", int32(len(on)), "1", "1Gi", nil)
	for i, node := range on {
		pod := c.add(node)
		pod.CreationTimestamp = metav1.NewTime(clitest.Now.Add(time.Duration(i-60) * time.Minute))
	}
	return c
}

// give gives a pod a cost of a field manager.
func give(pod *v1.Pod, cost, manager string) {
	pod.Annotations = map[string]string{v1.PodDeletionCost: cost}
	pod.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: manager, Operation: metav1.ManagedFieldsOperationApply}}
}

// follow makes the costs what is planned.
func follow(p *plan) {
	for i := range p.changes {
		change := &p.changes[i]
		change.pod.Annotations, change.pod.ManagedFields = nil, nil
		if change.cost != 0 {
			give(change.pod, strconv.Itoa(int(change.cost)), fieldManager)
		}
		change.written = true
	}
}

func unready(pod *v1.Pod) {
	pod.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionFalse}}
}

// changesOf are what is planned, as in "web-1-3 -1".
func changesOf(p *plan) []string {
	var out []string
	for _, c := range p.changes {
		out = append(out, fmt.Sprint(c.pod.Name, " ", c.cost))
	}
	return out
}

func TestPlan(t *testing.T) {
	fullest := []string{"a1", "a1", "a2", "b1", "c1", "c2"} // web-1-1 to web-1-6
	costs := []string{"web-1-2 -2", "web-1-3 -1", "web-1-6 -1"}
	for name, tc := range map[string]struct {
		change  func(c *cluster)
		changes []string
		reason  string
		message string
	}{
		"the fullest zone, and there the second pod of a node": {changes: costs},
		"a policy that does not ask for it": {change: func(c *cluster) {
			c.policy.Spec.ScaleDownPolicy = v1alpha1.ScaleDownIgnore
		}},
		"what is there already": {
			change:  func(c *cluster) { give(c.Pods()[1], "-2", fieldManager); give(c.Pods()[5], "-1", fieldManager) },
			changes: []string{"web-1-3 -1"},
		},
		"what nobody asks for any more": {
			change: func(c *cluster) {
				c.policy.Spec.ScaleDownPolicy = v1alpha1.ScaleDownIgnore
				give(c.Pods()[1], "-2", fieldManager)
				give(c.Pods()[2], "-2", "kubectl-annotate")
			},
			changes: []string{"web-1-2 0"},
		},
		"a cost of somebody else": {
			change:  func(c *cluster) { give(c.Pods()[0], "7", "kubectl-annotate"); give(c.Pods()[1], "-2", fieldManager) },
			changes: []string{"web-1-2 0"},
			reason:  v1alpha1.ReasonOtherManager,
			message: "ReplicaSet shop/web-1 is left alone: Pod web-1-1 has a deletion cost of kubectl-annotate",
		},
		"a cost that somebody else has, too": {
			change: func(c *cluster) {
				give(c.Pods()[0], "-2", fieldManager)
				c.Pods()[0].ManagedFields = append(
					c.Pods()[0].ManagedFields,
					metav1.ManagedFieldsEntry{Manager: "argocd", Operation: metav1.ManagedFieldsOperationApply},
				)
			},
			reason:  v1alpha1.ReasonOtherManager,
			message: "ReplicaSet shop/web-1 is left alone: Pod web-1-1 has a deletion cost of argocd",
		},
		"pods that are not ready leave by themselves": {
			change: func(c *cluster) { unready(c.Pods()[0]); unready(c.Pods()[1]) }, changes: []string{"web-1-6 -1"},
		},
		"a rollout": {
			change: func(c *cluster) {
				set := snapshot.List[*appsv1.ReplicaSet](c.Snapshot)[0].DeepCopy()
				set.Name, set.UID = "web-2", "other"
				c.Add(set)
				give(c.Pods()[0], "-5", fieldManager)
			},
			reason:  v1alpha1.ReasonInProgress,
			message: "Deployment shop/web replaces its pods: their costs stay as they are until it has",
		},
		"pods of a StatefulSet": {
			change: func(c *cluster) {
				for _, pod := range c.Pods() {
					pod.OwnerReferences[0].Kind, pod.OwnerReferences[0].UID = "StatefulSet", "set"
				}
			},
			reason:  v1alpha1.ReasonNothingToOrder,
			message: "no pods of a ReplicaSet or ReplicationController are selected, and other controllers look at no costs",
		},
		"a node that is cordoned counts": {
			change: func(c *cluster) {
				node := snapshot.List[*v1.Node](c.Snapshot)[1]
				node.Spec.Unschedulable, node.Spec.Taints = true, []v1.Taint{
					{Key: v1.TaintNodeUnschedulable, Effect: v1.TaintEffectNoSchedule},
				}
			},
			changes: costs,
		},
		"a node that is not for the pods": {
			change: func(c *cluster) {
				snapshot.List[*v1.Node](c.Snapshot)[1].Spec.Taints = []v1.Taint{
					{Key: "gpu", Effect: v1.TaintEffectNoSchedule},
				}
			},
			changes: []string{"web-1-3 -2", "web-1-2 -1", "web-1-6 -1"},
		},
		"no more than a number in a zone": {
			change:  func(c *cluster) { c.policy.Spec.MaxPerZone = new(intstr.FromInt32(1)) },
			changes: []string{"web-1-2 -2", "web-1-3 -1", "web-1-6 -1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(fullest...)
			if tc.change != nil {
				tc.change(c)
			}
			p := planFor(c.Snapshot, clitest.Now)
			require.Equal(t, tc.changes, changesOf(p))
			follow(p)
			require.Empty(t, planFor(c.Snapshot, clitest.Now).changes, "then nothing is to be done")
			if c.policy.Spec.ScaleDownPolicy == v1alpha1.ScaleDownIgnore {
				require.Empty(t, p.answers())
				return
			}
			a := p.answers()[0]
			if tc.reason == "" {
				tc.reason, tc.message = v1alpha1.ReasonOrdered, "pods leave in the order that keeps the spread"
			}
			require.Equal(t, []string{tc.reason, tc.message}, []string{a.reason, a.message})
			require.Equal(t, tc.reason == v1alpha1.ReasonOrdered, a.status == metav1.ConditionTrue)
		})
	}
}

// TestPodsThatDiffer: a label that was edited by hand, of the first pod by name, changes nothing about the others.
func TestPodsThatDiffer(t *testing.T) {
	label := func(pod *v1.Pod, key, value string) {
		pod.Labels = maps.Clone(pod.Labels)
		pod.Labels[key] = value
	}
	for name, change := range map[string]func(c *cluster){
		"the policy does not select it any more": func(c *cluster) {
			c.policy.Spec.PodSelector.MatchExpressions = []metav1.LabelSelectorRequirement{
				{Key: "quarantine", Operator: metav1.LabelSelectorOpDoesNotExist},
			}
			label(c.Pods()[0], "quarantine", "yes")
			give(c.Pods()[0], "-2", fieldManager)
		},
		"it counts as another revision": func(c *cluster) {
			c.policy.Spec.MatchLabelKeys = []string{"track"}
			for _, pod := range c.Pods() {
				label(pod, "track", "stable")
			}
			label(c.Pods()[0], "track", "canary")
			give(c.Pods()[0], "-2", fieldManager)
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster("a1", "a1", "a2", "b1", "c1", "c2")
			change(c)
			p := planFor(c.Snapshot, clitest.Now)
			require.Equal(t, []string{"web-1-1 0", "web-1-3 -1", "web-1-6 -1"}, changesOf(p))
			follow(p)
			require.Empty(t, planFor(c.Snapshot, clitest.Now).changes)
			require.Equal(t, v1alpha1.ReasonOrdered, p.answers()[0].reason)
		})
	}
}

// TestTwoPolicies: the first by name decides, and the other one says so.
func TestTwoPolicies(t *testing.T) {
	c := newCluster("a1", "a1", "b1")
	other := c.Policy("web", keepSpread)
	other.Name = "also"
	p := planFor(c.Snapshot, clitest.Now)
	require.Equal(t, []string{"web-1-2 -1"}, changesOf(p))
	follow(p)
	require.Equal(t, v1alpha1.ReasonOrdered, p.answers()[0].reason)
	require.Equal(t, "ZoneSpreadPolicy shop/also decides for some of the pods", p.answers()[1].message)
}

// TestPodKeepsItsPlace: a pod that ceases to be ready for a short time changes no costs.
func TestPodKeepsItsPlace(t *testing.T) {
	c := newCluster("a1", "a2", "b1", "b2", "c1", "c2")
	follow(planFor(c.Snapshot, clitest.Now))
	oldest := c.Pods()[0] // its cost is 0
	oldest.Status.Conditions = []v1.PodCondition{
		{Type: v1.PodReady, Status: v1.ConditionFalse, LastTransitionTime: metav1.NewTime(clitest.Now)},
		{
			Type: v1.PodScheduled, Status: v1.ConditionTrue,
			LastTransitionTime: metav1.NewTime(clitest.Now.Add(-time.Hour)),
		},
	}
	p := planFor(c.Snapshot, clitest.Now.Add(placeKept-time.Second))
	require.Empty(t, p.changes)
	require.Equal(t, placeKept, p.next)
	require.Equal(t, []string{"web-1-2 0"}, changesOf(planFor(c.Snapshot, clitest.Now.Add(placeKept))))
}

// TestOnePodIsOneWrite: where pods may have their shares, one that comes is one write, and so is one that goes,
// whichever it is.
func TestOnePodIsOneWrite(t *testing.T) {
	c := newCluster("a1", "a2", "b1", "b2", "c1", "c2", "a1", "b1", "c1")
	follow(planFor(c.Snapshot, clitest.Now))
	c.add("a2")
	p := planFor(c.Snapshot, clitest.Now)
	require.Equal(t, []string{"web-1-10 -3"}, changesOf(p))
	follow(p)
	for _, gone := range c.Pods() {
		gone.DeletionTimestamp = &metav1.Time{Time: clitest.Now}
		require.LessOrEqual(t, len(planFor(c.Snapshot, clitest.Now).changes), 1)
		gone.DeletionTimestamp = nil
	}
	for _, pod := range c.Pods() { // a zone is lost
		if pod.Spec.NodeName[0] == 'c' {
			pod.DeletionTimestamp = &metav1.Time{Time: clitest.Now}
		}
	}
	require.Empty(t, planFor(c.Snapshot, clitest.Now).changes)
}

// server notes what is written. It refuses what it is told to.
type server struct {
	client.Client
	wrote   []string
	refuses error
	// refused are the names of pods that are refused, by how they begin, and asked those that came.
	refused string
	asked   []string
	reasons []string
}

func (s *server) Apply(_ context.Context, applied runtime.ApplyConfiguration, _ ...client.ApplyOption) error {
	pod := applied.(*corev1.PodApplyConfiguration) //nolint:forcetypeassert // nothing else is applied
	s.asked = append(s.asked, *pod.Name)
	if s.refuses != nil {
		return s.refuses
	}
	if s.refused != "" && strings.HasPrefix(*pod.Name, s.refused) {
		return errors.New("a webhook refuses it")
	}
	s.wrote = append(s.wrote, fmt.Sprint(*pod.Name, " ", pod.Annotations[v1.PodDeletionCost]))
	return nil
}

func (s *server) Status() client.SubResourceWriter { return &statusWriter{server: s} }

type statusWriter struct {
	client.SubResourceWriter
	server *server
}

func (w *statusWriter) Patch(_ context.Context, obj client.Object, _ client.Patch, _ ...client.SubResourcePatchOption) error {
	w.server.reasons = append(w.server.reasons, obj.(*v1alpha1.ZoneSpreadPolicy).Status.Conditions[0].Reason) //nolint:forcetypeassert // nothing else is patched
	return nil
}

// TestTurn: no more is written in a minute than is allowed, what should leave first before all else, and nothing is
// concluded from what cannot be read.
func TestTurn(t *testing.T) {
	to := &server{}
	c := New(parts.Shared{Client: to, CPUFraction: 1000}, 6)
	now := clitest.Now
	c.now = func() time.Time { return now }
	cluster := newCluster("a1", "a2", "b1", "b2", "a1", "a2", "c1")
	turn := func() time.Duration {
		next, err := c.Turn(t.Context(), func() *snapshot.Snapshot { return cluster.Snapshot })
		require.NoError(t, err)
		return next
	}
	require.Equal(t, 10*time.Second, turn(), "a process that starts may write nothing yet")
	require.Empty(t, to.wrote)
	require.Equal(t, figures{waiting: 4}, c.figures)

	now = now.Add(time.Hour)
	require.Equal(t, 10*time.Second, turn(), "nor does it save up an hour")
	require.Equal(t, []string{"web-1-6 -3"}, to.wrote)
	give(cluster.Pods()[5], "-3", fieldManager)
	require.Equal(t, []string{v1alpha1.ReasonInProgress, v1alpha1.ReasonInProgress}, to.reasons)

	to.refuses = errors.New("may not")
	now = now.Add(10 * time.Second)
	turn()
	require.Equal(t, v1alpha1.ReasonNotWritten, to.reasons[2])

	to.refuses = nil
	cluster.Missing = []snapshot.Missing{{Resource: "zonespreadpolicies.zonewise.dev", Reason: snapshot.Forbidden}}
	now = now.Add(10 * time.Second)
	require.Equal(t, retryInterval, turn())
	require.Len(t, to.wrote, 1, "whether a policy asks for costs is not known")
	require.Equal(t, v1alpha1.ReasonSnapshotIncomplete, to.reasons[3])
	cluster.Missing[0].Reason = snapshot.NotInstalled
	now = now.Add(10 * time.Second)
	turn()
	require.Len(t, to.wrote, 2)
}

// TestRefusedWritesKeepNobodyWaiting: where a write is refused, the others of its ReplicaSet are not tried in the same
// turn, and go last in the next one.
func TestRefusedWritesKeepNobodyWaiting(t *testing.T) {
	to := &server{refused: "web-"}
	c := New(parts.Shared{Client: to, CPUFraction: 1000}, 6)
	now := clitest.Now
	c.now = func() time.Time { return now }
	cluster := newCluster("a1", "a1", "a1", "a1")
	cluster.Policy("api", keepSpread)
	add := cluster.Deployment("api", 2, "1", "1Gi", nil)
	add("b1")
	add("b1")
	for range 3 {
		_, err := c.Turn(t.Context(), func() *snapshot.Snapshot { return cluster.Snapshot })
		require.NoError(t, err)
		now = now.Add(10 * time.Second)
	}
	require.Equal(t, []string{"web-1-4", "api-1-2"}, to.asked)

	c = New(parts.Shared{Client: to, CPUFraction: 1000}, 60_000)
	c.now = func() time.Time { return now }
	to.asked = nil
	for range 2 {
		_, err := c.Turn(t.Context(), func() *snapshot.Snapshot { return cluster.Snapshot })
		require.NoError(t, err)
		now = now.Add(time.Minute)
	}
	require.Equal(t, []string{"web-1-4", "api-1-2"}, to.asked, "once for the ReplicaSet")
}

// TestUrgentFirst: a pod that has a cost that is too low is as urgent as one that lacks a low one.
func TestUrgentFirst(t *testing.T) {
	c := newCluster("a1", "a1", "b1", "b1", "b1")
	give(c.Pods()[0], "-3", fieldManager)
	give(c.Pods()[1], "-4", fieldManager)
	require.Equal(
		t, []string{"web-1-2 -1", "web-1-1 0", "web-1-5 -2", "web-1-4 -1"}, changesOf(planFor(c.Snapshot, clitest.Now)),
	)
}

// TestElsewhereStays: pods that are where the policy would not have them leave first; how much lower their costs are
// makes no difference.
func TestElsewhereStays(t *testing.T) {
	c := newCluster("a1", "a1", "a1", "b2", "c1")
	snapshot.List[*v1.Node](c.Snapshot)[3].Spec.Taints = []v1.Taint{{Key: "gpu", Effect: v1.TaintEffectNoSchedule}}
	p := planFor(c.Snapshot, clitest.Now)
	require.Equal(t, []string{"web-1-4 -3", "web-1-3 -2", "web-1-2 -1"}, changesOf(p))
	follow(p)
	c.Pods()[2].DeletionTimestamp = &metav1.Time{Time: clitest.Now}
	require.Empty(t, planFor(c.Snapshot, clitest.Now).changes)
}

// TestTrimmed: what is left of managed fields says whose a cost is.
func TestTrimmed(t *testing.T) {
	fields := func(manager, raw string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{
			Manager: manager, Operation: metav1.ManagedFieldsOperationApply, FieldsV1: metav1.NewFieldsV1(raw),
		}
	}
	cost := `{"f:metadata":{"f:annotations":{"f:controller.kubernetes.io/pod-deletion-cost":{}}}}`
	for want, managers := range map[bool][]metav1.ManagedFieldsEntry{
		true:  {fields("kubelet", `{"f:status":{}}`), fields(fieldManager, cost)},
		false: {fields(fieldManager, cost), fields("kubectl", cost)},
	} {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
			Annotations: map[string]string{v1.PodDeletionCost: "-1"}, ManagedFields: slices.Clone(managers),
		}}
		snapshot.Trim(pod)
		require.Equal(t, want, isOurs(pod))
		snapshot.Trim(pod)
		require.Equal(t, want, isOurs(pod), "once more")
	}
}

// TestRolloutIsWrittenOnce: while a Deployment replaces its pods one by one nothing is written, and afterwards at most
// one cost for each pod.
func TestRolloutIsWrittenOnce(t *testing.T) {
	c := newCluster("a1", "a2", "b1", "b2", "c1", "c2")
	follow(planFor(c.Snapshot, clitest.Now))
	old := snapshot.List[*appsv1.ReplicaSet](c.Snapshot)[0]
	set := old.DeepCopy()
	set.Name, set.UID = "web-2", "second"
	set.Spec.Replicas = new(int32(0))
	c.Add(set)
	before := c.Pods()
	for i, pod := range before {
		made := pod.DeepCopy()
		made.Name, made.UID, made.OwnerReferences[0].UID = fmt.Sprint("web-2-", i), "second-"+pod.UID, set.UID
		made.Annotations, made.ManagedFields, made.Labels[appsv1.DefaultDeploymentUniqueLabelKey] = nil, nil, "2"
		c.Add(made)
		*set.Spec.Replicas++
		require.Empty(t, planFor(c.Snapshot, clitest.Now).changes)
		pod.DeletionTimestamp = &metav1.Time{Time: clitest.Now}
		old.Spec.Replicas = new(int32(len(before) - i - 1))
		if i < len(before)-1 {
			require.Empty(t, planFor(c.Snapshot, clitest.Now).changes)
		}
	}
	require.Equal(t, []string{"web-2-1 -1", "web-2-3 -1", "web-2-5 -1"}, changesOf(planFor(c.Snapshot, clitest.Now)))
}

// BenchmarkPlan looks at 5,000 nodes with 150,000 pods of 1,000 Deployments in one namespace, of which a hundred keep
// their spread.
func BenchmarkPlan(b *testing.B) {
	s := clitest.Large(5000, 150_000)
	for _, p := range snapshot.List[*v1alpha1.ZoneSpreadPolicy](s) {
		keepSpread(&p.Spec)
	}
	for b.Loop() {
		planFor(s, clitest.Now)
	}
}
