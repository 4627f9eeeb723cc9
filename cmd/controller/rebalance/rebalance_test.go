package rebalance

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/cmd/controller/parts"
	"zonewise.dev/test/clitest"
)

// server has the ZoneRebalance, and refuses what is written against another version. A write that changes nothing
// makes no version, as an API server's.
type server struct {
	client.Client
	stored   *v1alpha1.ZoneRebalance
	second   *v1alpha1.ZoneRebalance // nil if there is only one
	conflict bool
	refused  error
	// evict, if not nil, evicts a pod of a cluster that runs.
	evict   func(pod *v1.Pod) error
	evicted []string
	events  []string
}

func (s *server) Status() client.SubResourceWriter { return &statusWriter{server: s} }

func (s *server) SubResource(string) client.SubResourceClient { return &evictions{server: s} }

func (s *server) Create(_ context.Context, obj client.Object, _ ...client.CreateOption) error {
	if e, ok := obj.(*eventsv1.Event); ok {
		s.events = append(s.events, e.Reason)
	}
	return nil
}

type statusWriter struct {
	client.SubResourceWriter
	server *server
}

func (w *statusWriter) Update(_ context.Context, obj client.Object, _ ...client.SubResourceUpdateOption) error {
	r, ok := obj.(*v1alpha1.ZoneRebalance)
	if !ok {
		return errors.New("not a ZoneRebalance")
	}
	at := &w.server.stored
	if r.Name != w.server.stored.Name {
		at = &w.server.second
	}
	stored := *at
	if w.server.conflict || r.ResourceVersion != stored.ResourceVersion {
		return apierrors.NewConflict(schema.GroupResource{Resource: "zonerebalances"}, r.Name, errors.New("old"))
	}
	if !equality.Semantic.DeepEqual(r.Status, stored.Status) {
		version, _ := strconv.Atoi(stored.ResourceVersion)
		r.ResourceVersion = strconv.Itoa(version + 1)
		*at = r.DeepCopy()
	}
	return nil
}

type evictions struct {
	client.SubResourceClient
	server *server
}

func (e *evictions) Create(_ context.Context, pod, body client.Object, _ ...client.SubResourceCreateOption) error {
	e.server.evicted = append(e.server.evicted, pod.GetName())
	eviction, ok := body.(*policyv1.Eviction)
	if !ok || eviction.DeleteOptions == nil || eviction.DeleteOptions.Preconditions == nil || eviction.DeleteOptions.Preconditions.UID == nil {
		return errors.New("an eviction without the UID of the pod")
	}
	if e.server.evict != nil {
		return e.server.evict(&v1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.GetNamespace(), Name: pod.GetName(), UID: *eviction.DeleteOptions.Preconditions.UID,
		}})
	}
	return e.server.refused
}

// world is a cluster whose zone c is empty, the ZoneRebalance, and the part of the controller.
type world struct {
	*server
	t          *testing.T
	cluster    *clitest.Cluster
	controller *Controller
	now        time.Time
	lags       *v1alpha1.ZoneRebalance // what is read of the first one, if not what is stored
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, cluster: clitest.New(), now: clitest.Now}
	for _, zone := range []string{"a", "b", "c"} {
		w.cluster.Node(zone, zone, "8", "32Gi")
	}
	add := w.cluster.Deployment("web", 6, "1", "1Gi", func(p *v1.PodTemplateSpec) {
		p.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{clitest.ZoneSpread("web", 1)}
	})
	for _, node := range []string{"a", "a", "a", "b", "b", "b"} {
		add(node)
	}
	w.server = &server{stored: newRebalance("web")}
	w.controller = New(parts.Shared{Client: w.server, CPUFraction: 1000}, Options{Seeds: 1})
	w.controller.now = func() time.Time { return w.now }
	return w
}

// newRebalance returns a ZoneRebalance that moves the pods of applications.
func newRebalance(apps ...string) *v1alpha1.ZoneRebalance {
	r := &v1alpha1.ZoneRebalance{ObjectMeta: metav1.ObjectMeta{Name: "services", UID: "r", Generation: 1, ResourceVersion: "1"}}
	r.Spec.Mode = v1alpha1.RebalanceEvict
	for _, app := range apps {
		r.Spec.Workloads = append(r.Spec.Workloads, v1alpha1.SurvivalWorkload{
			Namespace: clitest.Namespace, PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
		})
	}
	return r
}

// turn gives the part a turn some time later, and returns after how long it wants the next one.
func (w *world) turn(after time.Duration, missing ...snapshot.Missing) time.Duration {
	w.t.Helper()
	w.now = w.now.Add(after)
	next, err := w.controller.Turn(w.t.Context(), func() *snapshot.Snapshot {
		s := snapshot.New(w.now)
		s.Add(w.cluster.Objects()...)
		for _, r := range []*v1alpha1.ZoneRebalance{cmp.Or(w.lags, w.stored), w.second} {
			if r != nil {
				s.Add(r.DeepCopy())
			}
		}
		s.Missing = missing
		return s
	})
	require.NoError(w.t, err)
	return next
}

func (s *server) reason(condition string) string {
	if c := meta.FindStatusCondition(s.stored.Status.Conditions, condition); c != nil {
		return c.Reason
	}
	return ""
}

// TestSteps: nothing is planned until the zones have settled and all is known, nothing is evicted by a status that is
// not written, and what is refused is tried again.
func TestSteps(t *testing.T) {
	w := newWorld(t)
	w.turn(0)
	require.Equal(t, v1alpha1.ReasonSettling, w.reason(v1alpha1.ConditionReady))
	require.Equal(t, v1alpha1.ReasonNotPlannedYet, w.reason(v1alpha1.ConditionBalanced))
	w.turn(6*time.Minute, snapshot.Missing{Resource: "persistentvolumes", Reason: snapshot.Forbidden})
	require.Equal(t, v1alpha1.ReasonSnapshotIncomplete, w.reason(v1alpha1.ConditionReady))
	require.Empty(t, w.stored.Status.Moves)

	w.turn(time.Minute)
	require.Equal(t, v1alpha1.ReasonPlanning, w.reason(v1alpha1.ConditionReady))
	require.Equal(t, v1alpha1.ReasonMovesPlanned, w.reason(v1alpha1.ConditionBalanced))
	require.EqualValues(t, 2, w.stored.Status.Planned)
	require.Empty(t, w.evicted)

	w.conflict = true
	require.Equal(t, retryInterval, w.turn(time.Minute))
	require.Empty(t, w.evicted, "the intention is not in the status")
	w.conflict, w.refused = false, errors.New("a budget is in the way")
	for tries := range 3 {
		w.turn(10 * time.Second)
		require.Len(t, w.evicted, tries+1)
		require.Equal(t, v1alpha1.MoveEvicting, w.stored.Status.Moves[0].State)
		require.Equal(t, "a budget is in the way", w.stored.Status.Moves[0].Why)
	}
	w.refused = nil
	w.turn(10 * time.Second)
	require.Equal(t, v1alpha1.MoveEvicted, w.stored.Status.Moves[0].State)
	require.Equal(t, []string{"MoveEvicting", "MoveEvicted"}, w.events)
}

// TestABadSpecKeepsThePlan: a wrong selector is said, and the last plan stays and is not carried out.
func TestABadSpecKeepsThePlan(t *testing.T) {
	w := newWorld(t)
	w.turn(0)
	w.turn(6 * time.Minute)
	require.Len(t, w.stored.Status.Moves, 2)
	w.stored.Generation++
	w.stored.Spec.Workloads[0].PodSelector = metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Is"}}}
	w.turn(time.Minute)
	require.Equal(t, v1alpha1.ReasonInvalid, w.reason(v1alpha1.ConditionReady))
	require.EqualValues(t, 2, w.stored.Status.Planned)
	require.Equal(t, w.stored.Generation, w.stored.Status.ObservedGeneration)
	require.Empty(t, w.evicted)
}
