package reservecache

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/component-base/featuregate"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/component-helpers/resource"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/reservecache/floor"
	"zonewise.dev/plugins/reservecache/ledger"
	"zonewise.dev/plugins/reservecache/serve"
	"zonewise.dev/test/build"
)

func TestArgs(t *testing.T) {
	defaults := ReserveCacheArgs{
		HandlerSyncTimeout: metav1.Duration{Duration: 30 * time.Second},
		MaxHeldFraction:    0.5,
	}
	for name, tc := range map[string]struct {
		raw  string
		want func(*ReserveCacheArgs)
		err  string
	}{
		"none":  {raw: ``},
		"empty": {raw: `{}`},
		"kind":  {raw: `{"apiVersion":"kubescheduler.config.k8s.io/v1","kind":"ReserveCacheArgs"}`},
		"all": {raw: `{"handlerSyncTimeout":"2s","maxHeldFraction":0.25}`, want: func(a *ReserveCacheArgs) {
			a.MaxHeldFraction = 0.25
			a.HandlerSyncTimeout.Duration = 2 * time.Second
		}},
		"yaml":     {raw: "maxHeldFraction: 1\n", want: func(a *ReserveCacheArgs) { a.MaxHeldFraction = 1 }},
		"typo":     {raw: `{"handlersyncTimeout":"1m"}`, err: `plugin ReserveCache: args: unknown field "handlersyncTimeout"`},
		"timeout":  {raw: `{"handlerSyncTimeout":"0s"}`, err: `plugin ReserveCache: invalid args: handlerSyncTimeout: Invalid value: "0s": must be more than 0`},
		"fraction": {raw: `{"maxHeldFraction":1.5}`, err: `plugin ReserveCache: invalid args: maxHeldFraction: Invalid value: 1.5: must be above 0 and at most 1`},
		"no bound": {raw: `{"maxHeldFraction":0}`, err: `plugin ReserveCache: invalid args: maxHeldFraction: Invalid value: 0: must be above 0 and at most 1`},
		"no unit":  {raw: `{"handlerSyncTimeout":5}`, err: `plugin ReserveCache: args: `},
		"not yaml": {raw: `{`, err: `plugin ReserveCache: args: `},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := decodeArgs(&runtime.Unknown{Raw: []byte(tc.raw)})
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err)
				require.NotContains(t, err.Error(), "\n")
				return
			}
			require.NoError(t, err)
			want := defaults
			if tc.want != nil {
				tc.want(&want)
			}
			require.Equal(t, want, got)
		})
	}
}

func TestProfilesMustAgreeOnArgs(t *testing.T) {
	f := newFixture(t, nil)
	_, err := f.shared.New(t.Context(), &runtime.Unknown{Raw: []byte(`{"handlerSyncTimeout":"1s"}`)}, &handle{profile: "batch", factory: f.handle.factory})
	require.EqualError(t, err, `plugin ReserveCache: the args of profile "batch" differ from those of another profile: all profiles share the ledger`)
}

func TestSharedBeforeAnyProfile(t *testing.T) {
	s := NewShared()
	require.Nil(t, s.Ledger())
	require.Equal(t, Comparison{}, s.Comparison())
}

func TestNewNeedsInformers(t *testing.T) {
	s := NewShared()
	_, err := s.New(t.Context(), nil, &handle{})
	require.EqualError(t, err, "plugin ReserveCache: the framework has no informers, without which the ledger cannot know the cluster")

	// The failure leaves nothing behind that would keep another profile from starting.
	_, err = s.New(t.Context(), nil, &handle{factory: informers.NewSharedInformerFactory(fake.NewSimpleClientset(), 0)})
	require.NoError(t, err)
}

// TestOneLedgerPerScheduler is about the factory for schedulers that do not wire the plugins: profiles of
// one scheduler share, two schedulers do not.
func TestOneLedgerPerScheduler(t *testing.T) {
	ledgerOf := func(ctx context.Context, factory informers.SharedInformerFactory) any {
		p, err := New(ctx, nil, &handle{factory: factory})
		require.NoError(t, err)
		return p.(*ReserveCache).running.ledger
	}
	one := informers.NewSharedInformerFactory(fake.NewSimpleClientset(), 0)
	other := informers.NewSharedInformerFactory(fake.NewSimpleClientset(), 0)
	first := ledgerOf(t.Context(), one)
	require.Same(t, first, ledgerOf(t.Context(), one))
	require.NotSame(t, first, ledgerOf(t.Context(), other))
}

func TestFirstCycleWaitsForTheHandlers(t *testing.T) {
	args := defaultArgs()
	args.HandlerSyncTimeout = metav1.Duration{Duration: 5 * time.Millisecond}
	f := newFixture(t, &args, makeNode("n1"), makePod("p", "n1"))

	_, status := f.plugin.PreFilter(t.Context(), &cycleState{}, makePod("q", ""), nil)
	require.Equal(t, fwk.Error, status.Code(), "an error sends the pod to backoff and is retried")
	require.Contains(t, status.Message(), "the ledger has not seen all pods and nodes within 5ms")

	// A pod-group cycle waits as well.
	_, status = f.plugin.PreFilter(t.Context(), &cycleState{podGroup: true}, makePod("q", ""), nil)
	require.Equal(t, fwk.Error, status.Code())

	// The scheduler stops.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	f.plugin.running.gate.timeout = time.Hour
	_, status = f.plugin.PreFilter(ctx, &cycleState{}, makePod("q", ""), nil)
	require.Equal(t, fwk.Error, status.Code())

	// A cycle that is waiting goes on as soon as the handlers have synced, and sees all.
	waiting := make(chan *fwk.Status)
	go func() {
		_, status := f.plugin.PreFilter(t.Context(), &cycleState{}, makePod("q", ""), nil)
		waiting <- status
	}()
	f.start(t)
	require.True(t, (<-waiting).IsSkip(), "nothing is held")
	require.Equal(t, 1, f.shared.Ledger().Stats().Pods)

	// From then on there is nothing to wait for, even if the scheduler is stopping.
	require.NoError(t, f.plugin.running.gate.wait(ctx))
}

// TestRefusedPodsAreWokenAfterTheirBackoff: a pod that fits now is activated once the backoff of the configuration has
// passed since its last attempt, which doubles with each attempt up to the longest; until then the answer says when to
// ask again.
func TestRefusedPodsAreWokenAfterTheirBackoff(t *testing.T) {
	r := newRefusedPods(nil, func() (initial, longest time.Duration) { return 3 * time.Second, 10 * time.Second })
	claims := reserving(t, 1, headroom).plugin.running.server.Claims()
	pod := build.Pod("p", "1")
	request := ledger.Resources{MilliCPU: 1000, Pods: 1}
	room := []floor.At{{Node: "a", Allocatable: ledger.Resources{MilliCPU: 4000, Pods: 10}}}
	choose := func(now time.Time) serve.Woken { return r.Choose(floor.New(1), room, claims, false, now) }
	for attempt, backoff := range []time.Duration{3 * time.Second, 6 * time.Second, 10 * time.Second, 10 * time.Second} {
		tried := t0.Add(time.Duration(attempt) * time.Minute)
		r.beginAttempt(pod.UID)
		require.Empty(t, choose(tried).Pods, "a pod in its cycle is left alone")
		r.record(pod, &floor.Pod{Request: request}, tried)
		early := choose(tried.Add(backoff - time.Millisecond))
		require.Empty(t, early.Pods, "attempt %d", attempt)
		require.Equal(t, tried.Add(backoff), early.Next, "attempt %d", attempt)
		woken := choose(tried.Add(backoff))
		require.Equal(t, map[string]*v1.Pod{klog.KObj(pod).String(): pod}, woken.Pods, "attempt %d", attempt)
	}
}

const gaugeHelp = `
# HELP zonewise_reservecache_assumed_pods [ALPHA] Number of assumed pods that the API server has not shown bound yet.
# TYPE zonewise_reservecache_assumed_pods gauge
zonewise_reservecache_assumed_pods 2
# HELP zonewise_reservecache_ghost_nodes [ALPHA] Number of nodes that are gone, or not there yet, but have pods in the ledger.
# TYPE zonewise_reservecache_ghost_nodes gauge
zonewise_reservecache_ghost_nodes 1
# HELP zonewise_reservecache_nodes [ALPHA] Number of nodes in the ledger, without ghosts.
# TYPE zonewise_reservecache_nodes gauge
zonewise_reservecache_nodes 1
# HELP zonewise_reservecache_oldest_assumed_pod_age_seconds [ALPHA] Time since the oldest assumed pod was assumed; 0 if no pod is assumed.
# TYPE zonewise_reservecache_oldest_assumed_pod_age_seconds gauge
zonewise_reservecache_oldest_assumed_pod_age_seconds 90
# HELP zonewise_reservecache_pods [ALPHA] Number of pods in the ledger, including assumed ones.
# TYPE zonewise_reservecache_pods gauge
zonewise_reservecache_pods 3
`

func TestMetrics(t *testing.T) {
	// Schedulers of other tests have ended, so that only this one counts.
	eventually(t, func() bool { return collected.Live() == 0 })
	f := newFixture(t, nil, makeNode("n1"), makePod("bound", "n1")).start(t)
	require.Nil(t, f.plugin.Reserve(t.Context(), &cycleState{}, makePod("p", ""), "n1"))
	f.clock.SetTime(t0.Add(time.Minute))
	require.NoError(t, f.shared.Ledger().AssumePod(makePod("q", ""), "gone", f.clock.Now()))
	f.clock.SetTime(t0.Add(90 * time.Second))
	_, status := f.plugin.PreFilter(t.Context(), &cycleState{}, makePod("r", ""), nil)
	require.True(t, status.IsSkip(), "nothing is held")

	names := []string{}
	for line := range strings.SplitSeq(gaugeHelp, "\n") {
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			names = append(names, strings.Fields(rest)[0])
		}
	}
	require.Len(t, names, 5)
	require.NoError(t, testutil.GatherAndCompare(legacyregistry.DefaultGatherer, strings.NewReader(gaugeHelp), names...))
}

// TestLedgerWithoutGates: InPlacePodVerticalScaling is gone from Kubernetes 1.38 on, and what it stood for stays. This
// program has none of kube-scheduler's gates.
func TestLedgerWithoutGates(t *testing.T) {
	require.NotContains(t, utilfeature.DefaultMutableFeatureGate.GetAll(), featuregate.Feature("InPlacePodVerticalScaling"))
	cpu := func(amount string) v1.ResourceList {
		return v1.ResourceList{v1.ResourceCPU: apiresource.MustParse(amount)}
	}
	pod := &v1.Pod{
		Spec:   v1.PodSpec{Containers: []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{Requests: cpu("1")}}}},
		Status: v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{Name: "c", AllocatedResources: cpu("2")}}},
	}
	requests := resource.PodRequests(pod, ledgerOptions().Requests)
	require.Equal(t, "2", requests.Cpu().String(), "a resize that waits counts with what is larger")
}
