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

// changesIn are what is planned, by namespace.
func changesIn(s *snapshot.Snapshot) (out []change) {
	for _, p := range planNamespaces(s) {
		out = append(out, p.changes...)
	}
	return out
}

// follow makes the costs what is planned, and returns the policies, by namespace and name.
func follow(s *snapshot.Snapshot) (keepers []*keeper) {
	for _, p := range planNamespaces(s) {
		for _, change := range p.changes {
			change.pod.Annotations, change.pod.ManagedFields = nil, nil
			if change.cost != 0 {
				give(change.pod, strconv.Itoa(int(change.cost)), fieldManager)
			}
			if change.keeper != nil {
				change.keeper.unwritten--
			}
		}
		keepers = append(keepers, p.policies...)
	}
	return keepers
}

func unready(pod *v1.Pod) {
	pod.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionFalse}}
}

// planned is what is to be written, as in "web-1-3 -1".
func planned(s *snapshot.Snapshot) (out []string) {
	for _, c := range changesIn(s) {
		out = append(out, fmt.Sprint(c.pod.Name, " ", c.cost))
	}
	return out
}

func TestPlan(t *testing.T) {
	fullest := []string{"a1", "a1", "a2", "b1", "c1", "c2"} // web-1-1 to web-1-6, the oldest first
	costs := []string{"web-1-3 -2", "web-1-2 -1", "web-1-6 -1"}
	for name, tc := range map[string]struct {
		change  func(c *cluster)
		changes []string
		reason  string
		message string
	}{
		"the youngest pod of the fullest zone leaves first": {changes: costs},
		"a policy that does not ask for it": {change: func(c *cluster) {
			c.policy.Spec.ScaleDownPolicy = v1alpha1.ScaleDownIgnore
		}},
		"what is there already stays": {
			change:  func(c *cluster) { give(c.Pods()[0], "-2", fieldManager); give(c.Pods()[5], "-1", fieldManager) },
			changes: []string{"web-1-3 -1"},
		},
		"a cost that another pod has as well": {
			change:  func(c *cluster) { give(c.Pods()[0], "-1", fieldManager); give(c.Pods()[1], "-1", fieldManager) },
			changes: []string{"web-1-2 -2", "web-1-6 -1"},
		},
		"what no policy asks for any more": {
			change: func(c *cluster) {
				c.policy.Spec.ScaleDownPolicy = v1alpha1.ScaleDownIgnore
				give(c.Pods()[1], "-2", fieldManager)
				give(c.Pods()[2], "-2", "kubectl-annotate")
			},
			changes: []string{"web-1-2 0"},
		},
		"a cost of another writer": {
			change:  func(c *cluster) { give(c.Pods()[0], "7", "kubectl-annotate"); give(c.Pods()[1], "-2", fieldManager) },
			changes: []string{"web-1-2 0"},
			reason:  v1alpha1.ReasonOtherManager,
			message: "ReplicaSet web-1 is left alone: Pod web-1-1 has a deletion cost of kubectl-annotate",
		},
		"a cost that another writer has, too": {
			change: func(c *cluster) {
				give(c.Pods()[0], "-2", fieldManager)
				c.Pods()[0].ManagedFields = append(
					c.Pods()[0].ManagedFields,
					metav1.ManagedFieldsEntry{Manager: "argocd", Operation: metav1.ManagedFieldsOperationApply},
				)
			},
			reason:  v1alpha1.ReasonOtherManager,
			message: "ReplicaSet web-1 is left alone: Pod web-1-1 has a deletion cost of argocd",
		},
		"costs of another writer on all pods": {
			change: func(c *cluster) {
				for i, pod := range c.Pods() {
					give(pod, strconv.Itoa(i), "karpenter")
				}
			},
			reason:  v1alpha1.ReasonOtherManager,
			message: "ReplicaSet web-1 is left alone: Pod web-1-1 has a deletion cost of karpenter",
		},
		"pods that are not ready leave by themselves": {
			change: func(c *cluster) { unready(c.Pods()[0]); unready(c.Pods()[1]) }, changes: []string{"web-1-6 -1"},
		},
		"pods that are not ready keep what they have": {
			change: func(c *cluster) { unready(c.Pods()[1]); give(c.Pods()[1], "-7", fieldManager) }, changes: []string{"web-1-3 -1", "web-1-6 -1"},
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
		"weights": {
			change: func(c *cluster) {
				c.policy.Spec.Zones = []v1alpha1.ZoneSpreadZone{{Name: "a", Weight: new(int32(2))}}
			},
			changes: []string{"web-1-3 -10000", "web-1-6 -10000", "web-1-2 -5000"},
		},
		"a zone where the policy allows none": {
			change: func(c *cluster) {
				c.policy.Spec.Zones = []v1alpha1.ZoneSpreadZone{{Name: "c", Weight: new(int32(0))}}
			},
			changes: []string{"web-1-6 -1000000001", "web-1-5 -1000000000", "web-1-3 -2", "web-1-2 -1"},
		},
		"a pod whose node is gone": {
			change: func(c *cluster) { c.Pods()[0].Spec.NodeName = "gone" }, changes: []string{"web-1-3 -1", "web-1-6 -1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(fullest...)
			if tc.change != nil {
				tc.change(c)
			}
			require.Equal(t, tc.changes, planned(c.Snapshot))
			keepers := follow(c.Snapshot)
			require.Empty(t, planned(c.Snapshot), "then nothing is to be done")
			if c.policy.Spec.ScaleDownPolicy == v1alpha1.ScaleDownIgnore {
				require.Empty(t, keepers)
				return
			}
			if tc.reason == "" {
				tc.reason, tc.message = v1alpha1.ReasonOrdered, "pods leave in the order that keeps the spread"
			}
			condition := keepers[0].condition()
			require.Equal(t, []string{tc.reason, tc.message}, []string{condition.Reason, condition.Message})
			require.Equal(t, tc.reason == v1alpha1.ReasonOrdered, condition.Status == metav1.ConditionTrue)
		})
	}
}

// TestPodsThatDiffer: a label that was edited by hand, of the first pod by name, changes nothing about the others.
func TestPodsThatDiffer(t *testing.T) {
	c := newCluster("a1", "a1", "a2", "b1", "c1", "c2")
	c.policy.Spec.PodSelector.MatchExpressions = []metav1.LabelSelectorRequirement{
		{Key: "quarantine", Operator: metav1.LabelSelectorOpDoesNotExist},
	}
	pod := c.Pods()[0]
	pod.Labels = maps.Clone(pod.Labels)
	pod.Labels["quarantine"] = "yes"
	give(pod, "-2", fieldManager)
	require.Equal(t, []string{"web-1-1 0", "web-1-3 -1", "web-1-6 -1"}, planned(c.Snapshot))
	require.Equal(t, v1alpha1.ReasonOrdered, follow(c.Snapshot)[0].condition().Reason)
	require.Empty(t, planned(c.Snapshot))
}

// TestTwoPolicies: the first by name decides, and the other one says so.
func TestTwoPolicies(t *testing.T) {
	c := newCluster("a1", "a1", "b1")
	other := c.Policy("web", keepSpread)
	other.Name = "also"
	require.Equal(t, []string{"web-1-2 -1"}, planned(c.Snapshot))
	keepers := follow(c.Snapshot)
	require.Equal(t, v1alpha1.ReasonOrdered, keepers[0].condition().Reason)
	require.Equal(t, "ZoneSpreadPolicy shop/also decides for some of the pods", keepers[1].condition().Message)
}

// TestReplicaSetsAlone: each ReplicaSet has ranks of its own, also while a Deployment replaces its pods, and one that
// is left alone leaves the others as they are.
func TestReplicaSetsAlone(t *testing.T) {
	c := newCluster("a1", "a1", "b1")
	second := *snapshot.List[*appsv1.ReplicaSet](c.Snapshot)[0]
	second.Name, second.UID = "web-2", "second"
	for i, pod := range c.Pods() {
		made := pod.DeepCopy()
		made.Name, made.UID = fmt.Sprint("web-2-", i+1), "second-"+pod.UID
		made.OwnerReferences[0].Name, made.OwnerReferences[0].UID = second.Name, second.UID
		c.Add(made)
	}
	require.Equal(t, []string{"web-1-2 -1", "web-2-2 -1"}, planned(c.Snapshot))
	give(c.Pods()[4], "3", "kubectl-annotate") // web-2-2
	require.Equal(t, []string{"web-1-2 -1"}, planned(c.Snapshot))
	require.Equal(
		t, "ReplicaSet web-2 is left alone: Pod web-2-2 has a deletion cost of kubectl-annotate",
		follow(c.Snapshot)[0].condition().Message,
	)
}

// TestOnePodIsOneWrite: one pod that comes is one write, one that goes is one at most, whichever it is, and a zone that
// is lost is none.
func TestOnePodIsOneWrite(t *testing.T) {
	c := newCluster("a1", "a2", "b1", "b2", "c1", "c2", "a1", "b1", "c1")
	follow(c.Snapshot)
	c.add("a2")
	require.Equal(t, []string{"web-1-10 -3"}, planned(c.Snapshot))
	follow(c.Snapshot)
	for _, gone := range c.Pods() {
		gone.DeletionTimestamp = &metav1.Time{Time: clitest.Now}
		require.LessOrEqual(t, len(planned(c.Snapshot)), 1, "%s is gone", gone.Name)
		gone.DeletionTimestamp = nil
	}
	for _, pod := range c.Pods() {
		if pod.Spec.NodeName[0] == 'c' {
			pod.DeletionTimestamp = &metav1.Time{Time: clitest.Now}
		}
	}
	require.Empty(t, planned(c.Snapshot))
}

// server notes what is written. It refuses what it is told to.
type server struct {
	client.Client
	// wrote has the costs that came, reasons and messages the conditions.
	wrote, reasons, messages []string
	refuses                  error
	refused                  string // the names of pods that are refused, by how they begin
}

func (s *server) Apply(_ context.Context, applied runtime.ApplyConfiguration, _ ...client.ApplyOption) error {
	pod := applied.(*corev1.PodApplyConfiguration) //nolint:forcetypeassert // nothing else is applied
	if s.refuses != nil {
		return s.refuses
	}
	if s.refused != "" && strings.HasPrefix(*pod.Name, s.refused) {
		s.wrote = append(s.wrote, "refused "+*pod.Name)
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
	condition := obj.(*v1alpha1.ZoneSpreadPolicy).Status.Conditions[0] //nolint:forcetypeassert // nothing else is patched
	w.server.reasons, w.server.messages = append(w.server.reasons, condition.Reason), append(w.server.messages, condition.Message)
	return nil
}

// turn gives a controller its turn, and returns after how long it wants the next one.
func turn(t *testing.T, c *Controller, cluster *cluster) time.Duration {
	c.shared.Read = func() *snapshot.Snapshot { return cluster.Snapshot }
	result, err := c.Reconcile(t.Context(), parts.Look)
	require.NoError(t, err)
	return result.RequeueAfter
}

// newController returns one whose turns are an hour apart.
func newController(to *server) *Controller {
	c, now := New(parts.Shared{Client: to, CPUFraction: 1000}), clitest.Now
	c.now = func() time.Time { now = now.Add(time.Hour); return now }
	return c
}

// TestTurn: what is refused is tried again and said, and nothing is concluded from what cannot be read.
func TestTurn(t *testing.T) {
	to := &server{refuses: errors.New("may not")}
	c, cluster := newController(to), newCluster("a1", "a2", "b1", "a1")
	require.Equal(t, retryInterval, turn(t, c, cluster))
	require.Equal(t, []string{v1alpha1.ReasonNotWritten}, to.reasons)
	require.Equal(t, []string{"Pod web-1-4: may not"}, to.messages)

	to.refuses = nil
	cluster.Missing = []snapshot.Missing{{Resource: "zonespreadpolicies.zonewise.dev", Reason: snapshot.Forbidden}}
	require.Equal(t, retryInterval, turn(t, c, cluster))
	require.Empty(t, to.wrote, "whether a policy asks for costs is not known")
	require.Equal(t, v1alpha1.ReasonSnapshotIncomplete, to.reasons[1])

	cluster.Missing[0].Reason = snapshot.NotInstalled
	require.Equal(t, idleInterval, turn(t, c, cluster))
	require.Equal(t, []string{"web-1-4 -2", "web-1-2 -1"}, to.wrote)
	require.Equal(t, v1alpha1.ReasonOrdered, to.reasons[2])
}

// TestNamespacesTakeTurns: so many costs are written at once and no more, the lowest first, and neither the costs of
// one namespace nor what is refused there keep another one waiting.
func TestNamespacesTakeTurns(t *testing.T) {
	to := &server{}
	c, cluster := newController(to), newCluster()
	for range 2*writesAtOnce + 1 {
		cluster.add("a1")
	}
	small := cluster.Policy("web", keepSpread)
	small.Namespace = "zoo"
	cluster.Deployment("web", 2, "1", "1Gi", nil)
	for i := range 2 {
		pod := cluster.Pods()[i].DeepCopy()
		pod.Namespace, pod.Name = "zoo", fmt.Sprint("zoo-", i)
		cluster.Add(pod)
	}
	require.Equal(t, retryInterval, turn(t, c, cluster))
	require.Len(t, to.wrote, writesAtOnce)
	require.Equal(t, "web-1-99 -200", to.wrote[0], "the youngest, of equal ones the last by name")
	require.Equal(t, []string{"100 costs are still to be written"}, to.messages[:1])

	to.refused = "web-"
	turn(t, c, cluster)
	require.Equal(t, []string{"zoo-1 -1", "refused web-1-99"}, to.wrote[writesAtOnce:])
}

// TestUrgentFirst: a pod that has a cost that is too low is as urgent as one that lacks a low one.
func TestUrgentFirst(t *testing.T) {
	c := newCluster("a1", "a1", "b1", "b1", "b1")
	give(c.Pods()[0], "-3", fieldManager)
	give(c.Pods()[1], "-4", fieldManager)
	require.Equal(t, []string{"web-1-2 -1", "web-1-1 0", "web-1-5 -2", "web-1-4 -1"}, planned(c.Snapshot))
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
		require.Equal(t, want, hasOwnCost(pod))
		snapshot.Trim(pod)
		require.Equal(t, want, hasOwnCost(pod), "once more")
	}
}

// BenchmarkPlan looks at 5,000 nodes with 150,000 pods of 1,000 Deployments in one namespace, of which a hundred keep
// their spread.
func BenchmarkPlan(b *testing.B) {
	s := clitest.Large(5000, 150_000)
	for _, p := range snapshot.List[*v1alpha1.ZoneSpreadPolicy](s) {
		keepSpread(&p.Spec)
	}
	for b.Loop() {
		planNamespaces(s)
	}
}
