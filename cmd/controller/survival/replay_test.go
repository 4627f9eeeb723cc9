package survival

import (
	"context"
	"errors"
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
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/cmd/controller/parts"
	declared "zonewise.dev/cmd/controller/survival/metrics"
	"zonewise.dev/sim"
	"zonewise.dev/survival"
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
	cluster.Running("web", "2", nil, "a", "b")
	cluster.Running("big", "5", nil, "a", "b", "c")
	return cluster
}

// read returns a cluster of objects, and of ZoneSurvivals as the API server has them.
func (s *server) read(objects []client.Object, asked ...*v1alpha1.ZoneSurvival) *snapshot.Snapshot {
	cluster := snapshot.New(clitest.Now)
	cluster.Add(objects...)
	for _, a := range asked {
		a = a.DeepCopy()
		a.ResourceVersion, a.Status = strconv.Itoa(s.versions[a.Name]), s.statuses[a.Name]
		cluster.Add(a)
	}
	return cluster
}

// endAll ends the round that runs, which in a controller ends with the process.
func (c *Controller) endAll() {
	if c.running != nil {
		c.running.stop()
	}
}

// unlimited is a part with so large a budget that each look and each round may be at once.
func unlimited(t *testing.T, to client.Client) *Controller {
	t.Helper()
	c := New(parts.Shared{Client: to, CPUFraction: 1e9, Wake: func(reconcile.Request) {}}, Options{RefreshInterval: time.Hour})
	t.Cleanup(c.endAll)
	return c
}

// look has the part look at a cluster.
func look(t *testing.T, c *Controller, cluster *snapshot.Snapshot) {
	t.Helper()
	c.shared.Read = func() *snapshot.Snapshot { return cluster }
	_, err := c.Reconcile(t.Context(), parts.Look)
	require.NoError(t, err)
}

// endRound ends the full round that runs, and returns how many steps it took.
func endRound(t *testing.T, c *Controller) (steps int) {
	t.Helper()
	for more := true; more; steps++ {
		var err error
		more, err = c.step(t.Context())
		require.NoError(t, err)
	}
	return steps
}

// answered returns a part that has answered about ZoneSurvivals, and for which full rounds are slow. It may look at
// once, and begins no other full round.
func answered(t *testing.T, to *server, objects []client.Object, asked ...*v1alpha1.ZoneSurvival) *Controller {
	t.Helper()
	c := unlimited(t, to)
	look(t, c, to.read(objects, asked...))
	endRound(t, c)
	look(t, c, to.read(objects, asked...))
	require.Nil(t, c.running)
	c.fullBudget = parts.Meter{Fraction: 1, CPU: func() time.Duration { return time.Hour }}
	c.fullBudget.Begin(time.Now())
	c.fullBudget.CPU = func() time.Duration { return 2 * time.Hour }
	to.wrote, to.events = nil, nil
	return c
}

// TestAnswers: at the first look nothing is known, and after a full round all is written, with an event for each.
func TestAnswers(t *testing.T) {
	to := newServer()
	c := unlimited(t, to)
	objects := webAndBig().Objects()
	asked := []*v1alpha1.ZoneSurvival{protecting("web", false), protecting("big", false)}
	look(t, c, to.read(objects, asked...))
	require.Empty(t, to.wrote)
	endRound(t, c)
	look(t, c, to.read(objects, asked...))
	require.Equal(t, []string{"web", "big"}, to.wrote)
	require.Equal(t, []string{"web Survives", "big DoesNotSurvive"}, to.events)
	require.NotEmpty(t, to.statuses["web"].Snapshot.Scheduler)
	for range 2 {
		look(t, c, to.read(objects, asked...))
		require.Len(t, to.wrote, 2, "nothing has changed")
		require.Nil(t, c.running)
	}
}

// TestHoldNeedsNoReplay: the reservations are written at a look, before any loss has been replayed, and what is held is
// in the status beside the certificate.
func TestHoldNeedsNoReplay(t *testing.T) {
	to := newServer()
	c := unlimited(t, to)
	objects := webAndBig().Objects()
	look(t, c, to.read(objects, protecting("web", true), protecting("big", false)))
	require.Equal(t, []string{"reservation", "web"}, to.wrote)
	require.Equal(t, metav1.ConditionFalse, to.says("web", v1alpha1.ConditionHeld), "the scheduler has yet to hold it")

	endRound(t, c)
	look(t, c, to.read(objects, protecting("web", true), protecting("big", false)))
	require.Equal(t, []string{"reservation", "web", "reservation", "web", "big"}, to.wrote)
	require.Equal(t, metav1.ConditionTrue, to.says("web", v1alpha1.ConditionSurvives))
	require.Equal(t, metav1.ConditionFalse, to.says("web", v1alpha1.ConditionHeld))
}

// TestSlotsOfALostZoneWait: a zone counts for a day after its last node for the pods was deleted, also for a process
// that has started since: the reservations name it.
func TestSlotsOfALostZoneWait(t *testing.T) {
	c := New(parts.Shared{}, Options{})
	r := &v1alpha1.ZoneReservation{
		ObjectMeta: metav1.ObjectMeta{Name: "web", OwnerReferences: []metav1.OwnerReference{
			*metav1.NewControllerRef(protecting("web", true), v1alpha1.SchemeGroupVersion.WithKind("ZoneSurvival")),
		}},
		Spec: v1alpha1.ZoneReservationSpec{Zones: []v1alpha1.ReservationZone{{Name: "a", Slots: 1}, {Name: "b", Slots: 1}}},
	}
	cluster := snapshot.New(clitest.Now)
	cluster.Add(r)
	c.noteReservedZones(cluster)
	c.noteZones(map[string][]string{"web": {"b"}}, clitest.Now.Add(23*time.Hour))
	require.ElementsMatch(t, []string{"a", "b"}, c.reservedZones(clitest.Now.Add(23 * time.Hour))["web"])
	require.ElementsMatch(t, []string{"b"}, c.reservedZones(clitest.Now.Add(25 * time.Hour))["web"], "it is taken for given up")
}

// cordoned returns objects with a node that takes no pods, which only a full round can answer.
func cordoned(objects []client.Object, name string) []client.Object {
	objects = slices.Clone(objects)
	for i, obj := range objects {
		if node, ok := obj.(*corev1.Node); ok && node.Name == name {
			node = node.DeepCopy()
			node.Spec.Unschedulable = true
			objects[i] = node
		}
	}
	return objects
}

// TestChangedClusterIsUnknown: a change that only a full round can answer makes a certificate Unknown at once. One
// that is False stays. When the cluster is as it was, so is the answer. None of that is an event, nor is it written
// twice.
func TestChangedClusterIsUnknown(t *testing.T) {
	before, to := webAndBig().Objects(), newServer()
	asked := []*v1alpha1.ZoneSurvival{protecting("web", false), protecting("big", false)}
	c := answered(t, to, before, asked...)
	first := to.statuses["web"].Snapshot
	for range 2 {
		look(t, c, to.read(cordoned(before, "c"), asked...))
		require.Equal(t, []string{"web"}, to.wrote)
		require.Equal(t, metav1.ConditionUnknown, to.says("web", v1alpha1.ConditionSurvives))
		require.Equal(t, metav1.ConditionFalse, to.says("big", v1alpha1.ConditionSurvives))
	}
	web := to.statuses["web"]
	require.Equal(t, v1alpha1.ReasonClusterChanged, web.Conditions[0].Reason)
	require.Equal(t, first, web.Snapshot, "what is known is of the former cluster")

	look(t, c, to.read(before, asked...))
	require.Equal(t, metav1.ConditionTrue, to.says("web", v1alpha1.ConditionSurvives))
	require.Empty(t, to.events)
}

// TestAChangeShowsWhileARoundRuns: a full round is done in steps, and a look between them shows that the answers are of
// another cluster, once rounds are known to be slow. What the round answers is of the cluster at its beginning.
func TestAChangeShowsWhileARoundRuns(t *testing.T) {
	before, to := webAndBig().Objects(), newServer()
	asked := []*v1alpha1.ZoneSurvival{protecting("web", false), protecting("big", false)}
	for _, tc := range []struct {
		took time.Duration
		want metav1.ConditionStatus
	}{{slowRound + 1, metav1.ConditionUnknown}, {slowRound, metav1.ConditionTrue}} {
		c := unlimited(t, to)
		look(t, c, to.read(before, asked...))
		endRound(t, c)
		look(t, c, to.read(before, asked...))
		c.fullRoundTook = tc.took
		c.fullRoundAt = clitest.Now.Add(-2 * time.Hour) // so that the next round begins
		look(t, c, to.read(before, asked...))
		require.NotNil(t, c.running)
		more, err := c.step(t.Context())
		require.NoError(t, err)
		require.True(t, more)
		require.Equal(t, metav1.ConditionTrue, to.says("web", v1alpha1.ConditionSurvives))
		look(t, c, to.read(cordoned(before, "c"), asked...))
		require.Equal(t, tc.want, to.says("web", v1alpha1.ConditionSurvives), "the round before took %s", tc.took)
		require.Positive(t, endRound(t, c))
		look(t, c, to.read(before, asked...))
		require.Equal(t, metav1.ConditionTrue, to.says("web", v1alpha1.ConditionSurvives))
	}
}

// TestAnotherZoneSurvivalLeavesAnswersAlone: one that is new, or has another spec, waits for the next full round
// alone. The others follow the pods.
func TestAnotherZoneSurvivalLeavesAnswersAlone(t *testing.T) {
	before, to := webAndBig().Objects(), newServer()
	c := answered(t, to, before, protecting("web", false), protecting("big", false))
	edited, added := protecting("big", false), protecting("more", false)
	edited.Generation = 2
	look(t, c, to.read(before, protecting("web", false), edited, added))
	require.Equal(t, metav1.ConditionTrue, to.says("web", v1alpha1.ConditionSurvives))
	require.Equal(t, metav1.ConditionFalse, to.says("big", v1alpha1.ConditionSurvives), "its answer is that of the former spec")
	require.Empty(t, to.statuses["more"].Conditions)
	require.Empty(t, to.events)

	edited = protecting("web", false)
	edited.Generation = 2
	look(t, c, to.read(before, edited, protecting("big", false)))
	require.Equal(t, metav1.ConditionUnknown, to.says("web", v1alpha1.ConditionSurvives))
	require.Contains(t, to.statuses["web"].Conditions[0].Message, "the spec has changed since")
}

// TestAFollowedAnswerMayBreak: pods that come may break an answer; when they go again, only a full round makes it True.
func TestAFollowedAnswerMayBreak(t *testing.T) {
	to, cluster := newServer(), webAndBig()
	before := cluster.Objects()
	c := answered(t, to, before, protecting("web", false))
	cluster.Running("batch", "3", nil, "c")
	look(t, c, to.read(cluster.Objects(), protecting("web", false)))
	require.Equal(t, metav1.ConditionFalse, to.says("web", v1alpha1.ConditionSurvives))
	look(t, c, to.read(before, protecting("web", false)))
	require.Equal(t, metav1.ConditionFalse, to.says("web", v1alpha1.ConditionSurvives))
	require.Equal(t, []string{"web DoesNotSurvive"}, to.events)
}

// TestARecreatedZoneSurvivalHasNoAnswer: an object that is deleted and made again under its name, between two looks, is
// another one. It does not get the answer of the one before, neither in its status nor in the metrics.
func TestARecreatedZoneSurvivalHasNoAnswer(t *testing.T) {
	to, objects := newServer(), webAndBig().Objects()
	first, second := protecting("web", false), protecting("big", false)
	first.Name, second.Name = "services", "services"
	c := answered(t, to, objects, first)
	require.Equal(t, metav1.ConditionTrue, to.says("services", v1alpha1.ConditionSurvives))
	delete(to.statuses, "services")
	to.versions["services"] = 100
	for range 2 {
		look(t, c, to.read(objects, second))
		require.Empty(t, to.wrote)
		require.Empty(t, to.statuses["services"].Conditions)
	}
	c.collect(func(*metrics.Desc, float64, ...string) { t.Error("nothing is known of it") })
}

// TestARefusedWriteIsRepeated: what could not be written is written at the next look, without another round. What an
// object shows that has not seen the last write is not taken for its status.
func TestARefusedWriteIsRepeated(t *testing.T) {
	to, objects := newServer(), webAndBig().Objects()
	c := unlimited(t, to)
	old := to.read(objects, protecting("web", false))
	look(t, c, old)
	to.versions["web"]++ // somebody labels it
	endRound(t, c)
	look(t, c, old)
	require.Empty(t, to.wrote, "it is a conflict")
	look(t, c, to.read(objects, protecting("web", false)))
	require.Equal(t, []string{"web"}, to.wrote)
	require.Nil(t, c.running)
	old = to.read(objects, protecting("web", false))
	look(t, c, to.read(cordoned(objects, "c"), protecting("web", false)))
	wrote := len(to.wrote)
	snapshot.List[*v1alpha1.ZoneSurvival](old)[0].ResourceVersion = "1" // as before the write
	look(t, c, old)
	require.Len(t, to.wrote, wrote, "the informer has yet to see the last write")
}

// TestAnotherScheduler: a process with another profile does not show the answers of the one before as its own.
func TestAnotherScheduler(t *testing.T) {
	to, objects := newServer(), webAndBig().Objects()
	answered(t, to, objects, protecting("web", false)).endAll()
	config, err := sim.ParseConfig([]byte(`
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: another-scheduler
`))
	require.NoError(t, err)
	c := New(parts.Shared{Client: to, CPUFraction: 1e9, Wake: func(reconcile.Request) {}, Sim: sim.Options{Config: config}}, Options{RefreshInterval: time.Hour})
	t.Cleanup(c.endAll)
	look(t, c, to.read(objects, protecting("web", false)))
	require.Equal(t, metav1.ConditionUnknown, to.says("web", v1alpha1.ConditionSurvives))
	require.Contains(t, to.statuses["web"].Conditions[0].Message, "the scheduler's configuration or version has changed since")
	for name, change := range map[string]func(*survival.Options){
		"controllers": func(o *survival.Options) { o.Sim.Controllers = []string{"RayCluster.ray.io"} },
		"extenders":   func(o *survival.Options) { o.Sim.CallExtenders = true },
		"replays":     func(o *survival.Options) { o.Replays = 5 },
	} {
		changed := survival.Options{}
		change(&changed)
		require.NotEqual(t, schedulerHash(&survival.Options{}), schedulerHash(&changed), name)
	}
}

// TestPartsOfTheClusterAreNotKnown: while a kind cannot be read nothing is answered, certificates that were True are
// Unknown, and the message names the kind. When it can be read again, the answers are those of before.
func TestPartsOfTheClusterAreNotKnown(t *testing.T) {
	before, to := webAndBig().Objects(), newServer()
	c := answered(t, to, before, protecting("web", false), protecting("big", false))
	for range 2 {
		partial := to.read(before, protecting("web", false), protecting("big", false), protecting("new", false))
		partial.TakenAt = partial.TakenAt.Add(time.Minute)
		partial.Missing = []snapshot.Missing{{Resource: "podgroups.scheduling.x-k8s.io", Reason: snapshot.Outdated, Detail: "12:00:00 UTC: starting"}}
		look(t, c, partial)
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

	look(t, c, to.read(before, protecting("web", false), protecting("big", false)))
	require.Equal(t, metav1.ConditionTrue, to.says("web", v1alpha1.ConditionSurvives))
}

// TestRestartKeepsMetrics: before its first round, a controller shows what the objects say.
func TestRestartKeepsMetrics(t *testing.T) {
	s := protecting("web", false)
	s.Status.ComputedAt = metav1.Unix(1000, 0)
	s.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionSurvives, Status: metav1.ConditionFalse}}
	c := New(parts.Shared{CPUFraction: 1}, Options{})
	cluster := snapshot.New(clitest.Now)
	cluster.Add(s)
	c.newRound(cluster)
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
	c := unlimited(t, to)
	look := func() {
		look(t, c, cluster.Snapshot)
		if c.running != nil {
			endRound(t, c)
			look(t, c, cluster.Snapshot)
		}
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
