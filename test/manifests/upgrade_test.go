package manifests

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/test/build"
	"zonewise.dev/test/internal/program"
)

// previousRelease is the release before this one. There is none yet: it is a commit whose reservations list their
// consumers in the status, where this release derives them.
const previousRelease = "9cdc446af745097073ad029dbfdfc27d7400aed6"

// TestUpgrade goes from the previous release to this one and back, as docs/install.md says, with pods, gangs, policies
// and reservations in use and one replica of each release at a time when the lease changes hands. Nothing is lost, no
// pod moves, and what a release promises is kept by the next one.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	c := startChart(t)
	previous := t.TempDir()
	require.NoError(t, program.Checkout(repository(t), previous, previousRelease))
	oldProgram, err := program.Scheduler(previous)
	require.NoError(t, err)
	newProgram, err := program.Scheduler(repository(t))
	require.NoError(t, err)
	oldChart := filepath.Join(previous, "manifests", "charts", "zonewise")

	helm := func(args ...string) {
		t.Helper()
		_, err := c.do(t, append(args, "--namespace", metav1.NamespaceSystem)...)
		require.NoError(t, err)
	}
	rendered := func(chart string) []*unstructured.Unstructured {
		t.Helper()
		out, err := c.exec(t, nil, c.helm, "template", "zonewise", chart, "--namespace", metav1.NamespaceSystem, "--kube-version", "1.37.2", "--set", "mode=replace")
		require.NoError(t, err)
		return parse(t, out)
	}
	start := func(binary, chart string) (stop func()) {
		t.Helper()
		_, stop = c.startReplica(t, binary, rendered(chart))
		return stop
	}

	// The previous release.
	helm("install", "zonewise", oldChart, "--set", "mode=replace")
	c.mustRun(t, "wait", "--for=condition=Established", "--timeout=60s", "crd/podgroups.scheduling.x-k8s.io",
		"crd/zonespreadpolicies.zonewise.dev", "crd/zonereservations.zonewise.dev")
	c.make(t, &corev1.Namespace{ObjectMeta: named(namespace)})
	stopOld := start(oldProgram, oldChart)
	l := &live{chart: c}
	l.setUp(t)
	l.requireKept(t, 1)
	holder := c.leaseHolder(t)

	// A replica of each, of which the old one still leads.
	c.mustRun(t, "apply", "--server-side", "--force-conflicts", "-k", "crds")
	helm("upgrade", "zonewise", "charts/zonewise", "--reset-then-reuse-values")
	stopNew := start(newProgram, "charts/zonewise")
	l.place(t, "beside-new")
	require.Equal(t, holder, c.leaseHolder(t))

	// This release.
	stopOld()
	l.complete(t, "first")
	l.place(t, "with-new")
	require.NotEqual(t, holder, c.leaseHolder(t))
	l.requireKept(t, 1)
	holder = c.leaseHolder(t)

	// The way back.
	helm("rollback", "zonewise")
	stopOld = start(oldProgram, oldChart)
	l.place(t, "beside-old")
	require.Equal(t, holder, c.leaseHolder(t))
	stopNew()
	l.complete(t, "second")
	l.place(t, "with-old")
	require.NotEqual(t, holder, c.leaseHolder(t))
	// The previous release read from the status which pods use slots, and finds nothing there: it holds all of the room
	// that is promised beside what the owner has.
	l.requireKept(t, 0)
	l.bindOwner(t)
	stopOld()
}

// leaseHolder returns who leads.
func (c *cluster) leaseHolder(t *testing.T) string {
	t.Helper()
	lease, err := c.client.CoordinationV1().Leases(metav1.NamespaceSystem).Get(t.Context(), "kube-scheduler", metav1.GetOptions{})
	require.NoError(t, err)
	return ptr.Deref(lease.Spec.HolderIdentity, "")
}

// live is what users have in a cluster whose scheduler is replaced.
type live struct {
	*chart
	// seen is what everything has been, from the first time on.
	seen map[string]stays
	// closingSince is since when zone d has had no open node, as the policy's status says.
	closingSince string
}

// setUp makes four zones of one node each, pods of each kind, and objects of each kind in the middle of something: a
// gang that waits for a member, a zone that is closing, a reservation of which one of two slots is used, and a stranger
// that waits beside held room.
func (l *live) setUp(t *testing.T) {
	t.Helper()
	for _, zone := range []string{"a", "b", "c", "d"} {
		l.node(t, "node-"+zone, zone, "4")
	}
	headroom, guaranteed := reservation("headroom", "late", "2500m"), reservation("guaranteed", "owner", "500m")
	headroom.Spec.Zones = []v1alpha1.ReservationZone{{Name: "c", Slots: 1}}
	guaranteed.Spec.Zones, guaranteed.Spec.Mode = []v1alpha1.ReservationZone{{Name: "a", Slots: 2}}, v1alpha1.ModeGuarantee
	l.make(t, headroom, guaranteed)
	l.held(t, "headroom", 1, 0)
	l.held(t, "guaranteed", 2, 0)
	l.make(t, pod("owner", "500m", nil))
	require.Equal(t, "node-a", l.bound(t, "owner"))
	l.held(t, "guaranteed", 2, 1)

	api := spreadPolicy("api")
	api.Spec.UnavailableZones.DownAfter = &metav1.Duration{Duration: time.Hour}
	l.make(t, api)
	for _, name := range []string{"whole", "first", "second"} {
		l.podGroup(t, name, 2)
		l.make(t, pod(name+"-0", "100m", build.Member(name)))
	}
	l.make(t, pod("whole-1", "100m", build.Member("whole")))
	l.bound(t, "whole-0")
	l.bound(t, "whole-1")
	for _, name := range []string{"api-0", "api-1", "api-2", "api-3"} {
		l.make(t, pod(name, "100m", build.App("api")))
		l.bound(t, name)
	}
	l.make(t, pod("stranger", "2", build.Selects(corev1.LabelTopologyZone, "c")))
	l.tried(t, "stranger")

	_, err := l.client.CoreV1().Nodes().Patch(t.Context(), "node-d", types.MergePatchType, []byte(`{"spec": {"unschedulable": true}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	until(t, "zone d is closing", func(ctx context.Context) (bool, error) {
		l.closingSince, err = l.since(ctx)
		return l.closingSince != "", err
	})
}

// held waits until a reservation's status says that so many slots are held, and that owners use so many of them.
func (l *live) held(t *testing.T, name string, held, used int64) {
	t.Helper()
	until(t, name+" is held", func(ctx context.Context) (bool, error) {
		r := &v1alpha1.ZoneReservation{}
		err := l.api.Get(ctx, client.ObjectKey{Name: name}, r)
		return r.Status.Slots.Held == held && r.Status.Slots.Used == used, err
	})
}

// since returns since when zone d is closing, as the policy's status says.
func (l *live) since(ctx context.Context) (string, error) {
	p := &v1alpha1.ZoneSpreadPolicy{}
	err := l.api.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "api"}, p)
	for _, zone := range p.Status.Zones {
		if zone.Name == "d" && zone.Since != nil {
			return zone.Since.String(), err
		}
	}
	return "", err
}

// tried waits until the scheduler has found no node for a pod.
func (l *live) tried(t *testing.T, name string) {
	t.Helper()
	until(t, "the scheduler has tried "+name, func(ctx context.Context) (bool, error) {
		p, err := l.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		require.Empty(t, p.Spec.NodeName, name)
		for _, condition := range p.Status.Conditions {
			if condition.Type == corev1.PodScheduled && condition.Reason == corev1.PodReasonUnschedulable {
				return true, nil
			}
		}
		return false, nil
	})
}

// place has the scheduler that leads place a pod that fits.
func (l *live) place(t *testing.T, name string) {
	t.Helper()
	l.make(t, pod(name, "100m", nil))
	l.bound(t, name)
}

// complete makes the member that a gang waits for: it binds whole.
func (l *live) complete(t *testing.T, gang string) {
	t.Helper()
	before, err := l.client.CoreV1().Pods(namespace).Get(t.Context(), gang+"-0", metav1.GetOptions{})
	require.NoError(t, err)
	require.Empty(t, before.Spec.NodeName, "a gang that is not complete waits")
	l.make(t, pod(gang+"-1", "100m", build.Member(gang)))
	l.bound(t, gang+"-0")
	l.bound(t, gang+"-1")
}

// requireKept: the promises hold, and what was there is there, the pods on their nodes. used is how many slots owners
// use.
func (l *live) requireKept(t *testing.T, used int64) {
	t.Helper()
	l.held(t, "headroom", 1, 0)
	l.held(t, "guaranteed", 2, used)
	l.tried(t, "stranger")
	since, err := l.since(t.Context())
	require.NoError(t, err)
	require.Equal(t, l.closingSince, since, "a zone that is closing does not begin anew")

	now := l.everything(t)
	for key, before := range l.seen {
		if spec, ok := before.spec.(map[string]any); ok {
			delete(spec, "onZoneLoss") // a field of earlier versions, which is pruned
		}
		if before.node == "" {
			before.node = now[key].node // it waited, and may wait no longer
		}
		require.Equal(t, before, now[key], key)
	}
	l.seen = now
}

// bindOwner: the room that was kept from the stranger is still there for its owner.
func (l *live) bindOwner(t *testing.T) {
	t.Helper()
	l.make(t, pod("late", "2500m", build.Selects(corev1.LabelTopologyZone, "c")))
	require.Equal(t, "node-c", l.bound(t, "late"))
	l.tried(t, "stranger")
}
