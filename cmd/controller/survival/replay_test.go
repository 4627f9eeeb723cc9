package survival

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/component-base/metrics"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/cmd/controller/parts"
	declared "zonewise.dev/cmd/controller/survival/metrics"
	"zonewise.dev/test/clitest"
)

// server takes what a controller writes, in that order. As an API server does, it refuses what is based on an old
// resourceVersion.
type server struct {
	client.Client
	wrote    []string
	events   []string
	versions map[string]int
	statuses map[string]v1alpha1.ZoneSurvivalStatus
}

func newServer() *server {
	return &server{versions: map[string]int{}, statuses: map[string]v1alpha1.ZoneSurvivalStatus{}}
}

func (s *server) Status() client.SubResourceWriter { return &statusWriter{server: s} }

func (s *server) Create(_ context.Context, obj client.Object, _ ...client.CreateOption) error {
	if e, ok := obj.(*eventsv1.Event); ok {
		s.events = append(s.events, e.Regarding.Name+" "+e.Reason)
	}
	return nil
}

func (s *server) Apply(context.Context, runtime.ApplyConfiguration, ...client.ApplyOption) error {
	s.wrote = append(s.wrote, "reservation")
	return nil
}

func (s *server) says(name, condition string) metav1.ConditionStatus {
	status := s.statuses[name]
	return meta.FindStatusCondition(status.Conditions, condition).Status
}

type statusWriter struct {
	client.SubResourceWriter
	server *server
}

func (w *statusWriter) Update(_ context.Context, obj client.Object, _ ...client.SubResourceUpdateOption) error {
	s, ok := obj.(*v1alpha1.ZoneSurvival)
	if !ok {
		return errors.New("not a ZoneSurvival")
	}
	if s.ResourceVersion != strconv.Itoa(w.server.versions[s.Name]) {
		return apierrors.NewConflict(schema.GroupResource{Resource: "zonesurvivals"}, s.Name, errors.New("old"))
	}
	w.server.versions[s.Name]++
	s.ResourceVersion = strconv.Itoa(w.server.versions[s.Name])
	w.server.statuses[s.Name] = *s.Status.DeepCopy()
	w.server.wrote = append(w.server.wrote, s.Name)
	return nil
}

// protecting returns a ZoneSurvival of the pods of an app that has never been answered.
func protecting(app string, hold bool) *v1alpha1.ZoneSurvival {
	return &v1alpha1.ZoneSurvival{
		ObjectMeta: metav1.ObjectMeta{Name: app, UID: types.UID(app), ResourceVersion: "0", Generation: 1},
		Spec: v1alpha1.ZoneSurvivalSpec{
			Workloads: []v1alpha1.SurvivalWorkload{{
				Namespace: clitest.Namespace, PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
			}},
			Survive: v1alpha1.SurvivalLosses{Zones: ptr.To[int32](1)}, Hold: hold,
		},
	}
}

// webAndBig returns a cluster of three zones that has room for web after any loss, and none for big.
func webAndBig() *clitest.Cluster {
	cluster := clitest.New()
	for _, zone := range []string{"a", "b", "c"} {
		cluster.Node(zone, zone, "8", "32Gi")
	}
	web, big := cluster.Deployment("web", 2, "2", "1Gi", nil), cluster.Deployment("big", 3, "5", "1Gi", nil)
	web("a")
	web("b")
	big("a")
	big("b")
	big("c")
	return cluster
}

// look returns a round over objects, and over ZoneSurvivals as the API server has them.
func (s *server) look(c *Controller, objects []client.Object, asked ...*v1alpha1.ZoneSurvival) *round {
	objects = slices.Clone(objects)
	for _, a := range asked {
		a = a.DeepCopy()
		a.ResourceVersion, a.Status = strconv.Itoa(s.versions[a.Name]), s.statuses[a.Name]
		objects = append(objects, a)
	}
	cluster := snapshot.New(clitest.Now)
	cluster.Add(objects...)
	return c.newRound(cluster)
}

// TestHoldNeedsNoReplay: the reservations are written at a look, before any loss has been replayed, and what is held is
// in the status beside the certificate.
func TestHoldNeedsNoReplay(t *testing.T) {
	to := newServer()
	c := New(parts.Shared{Client: to, CPUFraction: 1}, Options{})
	t.Cleanup(c.Close)
	to.look(c, webAndBig().Objects(), protecting("web", true), protecting("big", false)).holdRoom(t.Context())
	require.Equal(t, []string{"reservation", "web"}, to.wrote)
	require.Equal(t, metav1.ConditionFalse, to.says("web", v1alpha1.ConditionHeld), "the scheduler has yet to hold it")

	r := to.look(c, webAndBig().Objects(), protecting("web", true), protecting("big", false))
	require.NoError(t, r.replayLosses(t.Context()))
	require.Equal(t, []string{"reservation", "web", "web", "big"}, to.wrote)
	require.Equal(t, metav1.ConditionTrue, to.says("web", v1alpha1.ConditionSurvives))
	require.Equal(t, metav1.ConditionFalse, to.says("web", v1alpha1.ConditionHeld))
}

// TestSlotsOfALostZoneWait: a zone counts for a day after its last node was deleted, also for a process that has
// started since: the reservations name it.
func TestSlotsOfALostZoneWait(t *testing.T) {
	c := New(parts.Shared{}, Options{})
	at := func(after time.Duration, objects ...client.Object) *snapshot.Snapshot {
		s := snapshot.New(clitest.Now.Add(after))
		s.Add(objects...)
		return s
	}
	r := &v1alpha1.ZoneReservation{
		ObjectMeta: metav1.ObjectMeta{Name: "web", OwnerReferences: []metav1.OwnerReference{
			*metav1.NewControllerRef(protecting("web", true), v1alpha1.SchemeGroupVersion.WithKind("ZoneSurvival")),
		}},
		Spec: v1alpha1.ZoneReservationSpec{Zones: []v1alpha1.ReservationZone{{Name: "a", Slots: 1}, {Name: "b", Slots: 1}}},
	}
	b := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "b", Labels: map[string]string{corev1.LabelTopologyZone: "b"}}}
	c.noteReservedZones(at(0, r, b))
	c.noteZones(at(23*time.Hour, r, b))
	require.ElementsMatch(t, []string{"a", "b"}, slices.Collect(maps.Keys(c.seen)))
	c.noteZones(at(25*time.Hour, r, b))
	require.ElementsMatch(t, []string{"b"}, slices.Collect(maps.Keys(c.seen)), "it is taken for given up")
}

// searchAll ends all searches, and returns the look that wrote what they found.
func searchAll(t *testing.T, to *server, c *Controller, asked ...*v1alpha1.ZoneSurvival) *round {
	t.Helper()
	for next := time.Duration(0); next < math.MaxInt64; {
		next, _ = searchStep(t, c)
	}
	r := to.look(c, webAndBig().Objects(), asked...)
	r.writePurchases(t.Context())
	require.Empty(t, c.purchases.found)
	return r
}

// searchStep does a step that the budget allows.
func searchStep(t *testing.T, c *Controller) (next time.Duration, found bool) {
	t.Helper()
	c.purchases.budget = parts.Meter{Fraction: 1, CPU: func() time.Duration { return 0 }}
	next, found, err := c.Work(t.Context())
	require.NoError(t, err)
	return next, found
}

// TestASearchGoesOnWhileTheClusterChanges: another full round does not begin it anew, unless nobody asks for it any
// more. When it has ended, the newest round is searched.
func TestASearchGoesOnWhileTheClusterChanges(t *testing.T) {
	to := newServer()
	c := New(parts.Shared{Client: to, CPUFraction: 1}, Options{})
	t.Cleanup(c.Close)
	changed := webAndBig()
	round := func(asked ...*v1alpha1.ZoneSurvival) {
		require.NoError(t, to.look(c, changed.Objects(), asked...).replayLosses(t.Context()))
	}
	round(protecting("web", false), protecting("big", false))
	next, found := searchStep(t, c)
	require.Zero(t, next)
	require.False(t, found)
	begun := c.purchases.searches
	require.Len(t, begun, 1)

	changed.Pod("new", "a", clitest.Plain("1m", "1Mi"), nil)
	round(protecting("web", false), protecting("big", false))
	require.Equal(t, begun, c.purchases.searches)
	for !found {
		next, found = searchStep(t, c)
		require.Zero(t, next)
	}
	_, found = searchStep(t, c)
	require.Len(t, c.purchases.searches, 1, "the newer round is searched after it")
	require.NotSame(t, begun[0], c.purchases.searches[0])
	require.False(t, found)
	searchAll(t, to, c, protecting("web", false), protecting("big", false))
	round(protecting("web", false), protecting("big", false))
	next, _ = searchStep(t, c)
	require.Equal(t, time.Duration(math.MaxInt64), next, "nothing has changed")

	edited := protecting("big", false)
	edited.Generation, edited.Spec.Survive = 2, v1alpha1.SurvivalLosses{ZoneNames: []string{"a"}}
	round(edited)
	require.Empty(t, c.purchases.searches)
	to.wrote = nil
	searchAll(t, to, c, edited)
	require.Equal(t, []string{"big"}, to.wrote)
	next, _ = searchStep(t, c)
	require.Equal(t, time.Duration(math.MaxInt64), next, "nothing is left to search")
}

// TestNoSearchKeepsOthersWaiting: those without an answer are searched first, the cheapest before the others, and two
// at a time, a step of each in turn.
func TestNoSearchKeepsOthersWaiting(t *testing.T) {
	to := newServer()
	c := New(parts.Shared{Client: to, CPUFraction: 1}, Options{})
	t.Cleanup(c.Close)
	dear, cheap, cheaper := protecting("big", false), protecting("big", false), protecting("big", false)
	dear.Name, cheap.Name, cheaper.Name = "dear", "cheap", "cheaper"
	cheap.Spec.Survive = v1alpha1.SurvivalLosses{ZoneNames: []string{"a", "b"}}
	cheaper.Spec.Survive = v1alpha1.SurvivalLosses{ZoneNames: []string{"a"}}
	for _, s := range []*v1alpha1.ZoneSurvival{dear, cheap, cheaper} {
		s.UID = types.UID(s.Name)
	}
	changed := webAndBig()
	// round has a full round of a changed cluster, and its searches to their end. It returns whose steps there were,
	// and whose search ended.
	round := func(asked ...*v1alpha1.ZoneSurvival) (turns, ended []string) {
		changed.Pod("new-"+strconv.Itoa(len(to.wrote)), "a", clitest.Plain("1m", "1Mi"), nil)
		require.NoError(t, to.look(c, changed.Objects(), asked...).replayLosses(t.Context()))
		for next := time.Duration(0); next < math.MaxInt64; {
			c.purchases.begin(t.Context())
			before := len(c.purchases.found)
			if len(c.purchases.searches) > 0 {
				turns = append(turns, c.purchases.searches[0].asked.Name)
			}
			next, _ = searchStep(t, c)
			if len(c.purchases.found) > before {
				ended = append(ended, turns[len(turns)-1])
			}
		}
		to.look(c, changed.Objects(), asked...).writePurchases(t.Context())
		return turns, ended
	}
	_, ended := round(dear)
	require.Equal(t, []string{"dear"}, ended)

	turns, ended := round(dear, cheap, cheaper)
	require.Equal(t, []string{"cheaper", "cheap", "cheaper", "cheap"}, turns[:4])
	require.Equal(t, "cheaper", ended[0])
	require.ElementsMatch(t, []string{"dear", "cheap", "cheaper"}, ended)
	require.Equal(t, "cheap", turns[slices.Index(turns, "dear")-1], "it goes on with the rest in turn")
}

// answered returns a controller that has answered about web, which survives, and about big, which does not.
func answered(t *testing.T, to *server, objects []client.Object) *Controller {
	t.Helper()
	c := New(parts.Shared{Client: to, CPUFraction: 1}, Options{RefreshInterval: time.Hour})
	t.Cleanup(c.certifier.Close)
	r := to.look(c, objects, protecting("web", false), protecting("big", false))
	require.NoError(t, r.replayLosses(t.Context()))
	c.hashOfStatuses = r.questionHash()
	require.Equal(t, []string{"web Survives", "big DoesNotSurvive"}, to.events)
	to.wrote, to.events = nil, nil
	return c
}

// TestChangedClusterIsUnknown: a change that only a full round can answer makes a certificate Unknown at once. One
// that is False stays. When the cluster is as it was, so is the answer. None of that is an event, nor is it written
// twice.
func TestChangedClusterIsUnknown(t *testing.T) {
	before, to := webAndBig().Objects(), newServer()
	c := answered(t, to, before)
	first := to.statuses["web"].Snapshot
	changed := slices.Clone(before)
	for i, obj := range changed {
		if node, ok := obj.(*corev1.Node); ok && node.Name == "c" {
			cordoned := node.DeepCopy()
			cordoned.Spec.Unschedulable = true
			changed[i] = cordoned
		}
	}
	for range 2 {
		require.NoError(t, to.look(c, changed, protecting("web", false), protecting("big", false)).followChanges(t.Context()))
		require.Equal(t, []string{"web"}, to.wrote)
		require.Equal(t, metav1.ConditionUnknown, to.says("web", v1alpha1.ConditionSurvives))
		require.Equal(t, metav1.ConditionFalse, to.says("big", v1alpha1.ConditionSurvives))
	}
	web := to.statuses["web"]
	require.Equal(t, v1alpha1.ReasonClusterChanged, web.Conditions[0].Reason)
	require.Equal(t, first, web.Snapshot, "what is known is of the former cluster")

	require.NoError(t, to.look(c, before, protecting("web", false), protecting("big", false)).followChanges(t.Context()))
	require.Equal(t, metav1.ConditionTrue, to.says("web", v1alpha1.ConditionSurvives))
	require.Empty(t, to.events)
}

// TestAnotherZoneSurvivalLeavesAnswersAlone: one that is new, or has another spec, waits for the next full round
// alone. The others follow the pods.
func TestAnotherZoneSurvivalLeavesAnswersAlone(t *testing.T) {
	before, to := webAndBig().Objects(), newServer()
	c := answered(t, to, before)
	edited, added := protecting("big", false), protecting("more", false)
	edited.Generation = 2
	require.NoError(t, to.look(c, before, protecting("web", false), edited, added).followChanges(t.Context()))
	require.Equal(t, metav1.ConditionTrue, to.says("web", v1alpha1.ConditionSurvives))
	require.Equal(t, metav1.ConditionFalse, to.says("big", v1alpha1.ConditionSurvives), "its answer is that of the former spec")
	require.Empty(t, to.statuses["more"].Conditions)
	require.Empty(t, to.events)

	edited = protecting("web", false)
	edited.Generation = 2
	require.NoError(t, to.look(c, before, edited, protecting("big", false)).followChanges(t.Context()))
	require.Equal(t, metav1.ConditionUnknown, to.says("web", v1alpha1.ConditionSurvives))
	require.Contains(t, to.statuses["web"].Conditions[0].Message, "the spec has changed since")
}

// TestPartsOfTheClusterAreNotKnown: while a kind cannot be read nothing is answered, certificates that were True are
// Unknown, and the message names the kind. When it can be read again, the answers are those of before.
func TestPartsOfTheClusterAreNotKnown(t *testing.T) {
	before, to := webAndBig().Objects(), newServer()
	c := answered(t, to, before)
	partial := func(asked ...*v1alpha1.ZoneSurvival) func() *snapshot.Snapshot {
		return func() *snapshot.Snapshot {
			s := snapshot.New(clitest.Now.Add(time.Minute))
			s.Add(before...)
			for _, a := range asked {
				a.ResourceVersion, a.Status = strconv.Itoa(to.versions[a.Name]), to.statuses[a.Name]
				s.Add(a)
			}
			s.Missing = []snapshot.Missing{{Resource: "podgroups.scheduling.x-k8s.io", Reason: snapshot.Outdated, Detail: "12:00:00 UTC: starting"}}
			return s
		}
	}
	for range 2 {
		_, err := c.Turn(t.Context(), partial(protecting("web", false), protecting("big", false), protecting("new", false)))
		require.NoError(t, err)
		require.Equal(t, []string{"web", "new"}, to.wrote)
	}
	for _, name := range []string{"web", "new"} {
		status := to.statuses[name]
		require.Equal(t, metav1.ConditionUnknown, status.Conditions[0].Status)
		require.Equal(t, v1alpha1.ReasonSnapshotIncomplete, status.Conditions[0].Reason)
		require.Equal(t, "podgroups.scheduling.x-k8s.io have not been read since 12:00:00 UTC: starting", status.Conditions[0].Message)
	}
	require.Equal(t, int64(1), to.statuses["new"].ObservedGeneration)
	require.Equal(t, metav1.ConditionFalse, to.says("big", v1alpha1.ConditionSurvives))

	require.NoError(t, to.look(c, before, protecting("web", false), protecting("big", false)).followChanges(t.Context()))
	require.Equal(t, metav1.ConditionTrue, to.says("web", v1alpha1.ConditionSurvives))
}

// TestRestartKeepsMetrics: before its first round, a controller shows what the objects say.
func TestRestartKeepsMetrics(t *testing.T) {
	s := protecting("web", false)
	s.Status.ComputedAt = metav1.Unix(1000, 0)
	s.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionSurvives, Status: metav1.ConditionFalse}}
	c := New(parts.Shared{CPUFraction: 1}, Options{})
	c.rememberWritten([]*v1alpha1.ZoneSurvival{s})
	got := map[*metrics.Desc]float64{}
	c.collect(func(of *metrics.Desc, value float64, _ ...string) { got[of] = value })
	require.Equal(t, map[*metrics.Desc]float64{declared.Survives: 0, declared.Computed: 1000}, got)
}

// TestReadinessIsFollowed: what is left without a zone is written when the readiness of pods changes, though nothing
// has to be replayed for it.
func TestReadinessIsFollowed(t *testing.T) {
	cluster := webAndBig()
	asked := protecting("web", false)
	asked.Spec.Impaired = &v1alpha1.SurvivalImpairment{LeastServing: intstr.FromString("50%")}
	cluster.Add(asked)
	to := newServer()
	c := New(parts.Shared{Client: to, CPUFraction: 1000}, Options{RefreshInterval: time.Hour}) // each look may run at once
	look := func() {
		_, err := c.renewAnswers(t.Context(), func() *snapshot.Snapshot { return cluster.Snapshot })
		require.NoError(t, err)
		status := to.statuses["web"]
		asked.Status, asked.ResourceVersion = *status.DeepCopy(), strconv.Itoa(to.versions["web"])
	}
	look()
	require.Equal(t, metav1.ConditionTrue, to.says("web", v1alpha1.ConditionServes))
	require.Len(t, to.statuses["web"].Impaired, 3)
	wrote := len(to.wrote)
	look()
	require.Len(t, to.wrote, wrote, "nothing has changed")
	for _, pod := range cluster.Pods() {
		if pod.Labels["app"] == "web" && pod.Spec.NodeName == "b" {
			pod.Status.Conditions = nil
		}
	}
	look()
	require.Len(t, to.wrote, wrote+1)
	require.Equal(t, metav1.ConditionFalse, to.says("web", v1alpha1.ConditionServes))
	require.Equal(t, metav1.ConditionTrue, to.says("web", v1alpha1.ConditionSurvives))
	require.Equal(t, "web TooFewServing", to.events[len(to.events)-1])
}
