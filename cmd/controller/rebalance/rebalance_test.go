package rebalance

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	v1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/cmd/controller/parts"
	"zonewise.dev/rebalance"
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
	// asked, if not nil, is called with the context of a request to evict a pod.
	asked func(ctx context.Context)
	// forbidden: the role to evict is missing.
	forbidden bool
	// onWrite, if not nil, is called after a status is written.
	onWrite func()
	events  []string
}

func (s *server) Status() client.SubResourceWriter { return &statusWriter{server: s} }

func (s *server) SubResource(string) client.SubResourceClient { return &evictions{server: s} }

func (s *server) Create(_ context.Context, obj client.Object, _ ...client.CreateOption) error {
	switch o := obj.(type) {
	case *eventsv1.Event:
		s.events = append(s.events, o.Reason)
	case *authorizationv1.SelfSubjectAccessReview:
		o.Status.Allowed = !s.forbidden
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
	if w.server.onWrite != nil {
		w.server.onWrite()
	}
	return nil
}

type evictions struct {
	client.SubResourceClient
	server *server
}

func (e *evictions) Create(ctx context.Context, pod, body client.Object, _ ...client.SubResourceCreateOption) error {
	e.server.evicted = append(e.server.evicted, pod.GetName())
	if e.server.asked != nil {
		e.server.asked(ctx)
	}
	eviction, ok := body.(*policyv1.Eviction)
	if !ok || eviction.DeleteOptions == nil || eviction.DeleteOptions.Preconditions == nil || eviction.DeleteOptions.Preconditions.UID == nil ||
		eviction.DeleteOptions.Preconditions.ResourceVersion == nil {
		return errors.New("an eviction without the UID and the resourceVersion of the pod")
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
	missing    []snapshot.Missing      // what cannot be read
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, cluster: drifted(v1.DoNotSchedule), now: clitest.Now}
	w.server = &server{stored: newRebalance("web")}
	w.controller = New(parts.Shared{Client: w.server, CPUFraction: 1000, Read: w.readCluster, Wake: func(reconcile.Request) {}}, Options{Seeds: 1, ReadyFor: rebalance.DefaultReadyFor})
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
	w.missing = missing
	result, err := w.controller.Reconcile(w.t.Context(), parts.Look)
	require.NoError(w.t, err)
	return result.RequeueAfter
}

func (w *world) readCluster() *snapshot.Snapshot {
	s := snapshot.New(w.now)
	s.Missing = w.missing
	s.Add(w.cluster.Objects()...)
	for _, r := range []*v1alpha1.ZoneRebalance{cmp.Or(w.lags, w.stored), w.second} {
		if r != nil {
			s.Add(r.DeepCopy())
		}
	}
	return s
}

func (s *server) reason(condition string) string {
	if c := meta.FindStatusCondition(s.stored.Status.Conditions, condition); c != nil {
		return c.Reason
	}
	return ""
}

// plan is turn for a ZoneRebalance in mode Plan: the plan that the turn has begun is made and entered.
func (w *world) plan(after time.Duration) {
	w.t.Helper()
	w.turn(after)
	if !w.controller.planning.isUnderWay() {
		return
	}
	for more := true; more; {
		var err error
		more, err = w.controller.step(w.t.Context())
		require.NoError(w.t, err)
	}
	w.turn(time.Second)
}

// states are those of the moves, the oldest first.
func (s *server) states() (out []v1alpha1.RebalanceMoveState) {
	for i := range s.stored.Status.Moves {
		out = append(out, s.stored.Status.Moves[i].State)
	}
	return out
}
