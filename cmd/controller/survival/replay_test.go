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
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/component-base/metrics"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/cmd/controller/parts"
	declared "zonewise.dev/cmd/controller/survival/metrics"
	"zonewise.dev/survival"
	"zonewise.dev/test/clitest"
)

// server takes what a controller writes, in that order. As an API server does, it refuses what is based on an old resourceVersion.
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
		ObjectMeta: metav1.ObjectMeta{Name: app, ResourceVersion: "0", Generation: 1},
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

// TestCertificatesComeFirst: room is planned only when all certificates are written. What is held then has a write of its own, which the
// API server takes.
func TestCertificatesComeFirst(t *testing.T) {
	cluster := webAndBig()
	asked := []*v1alpha1.ZoneSurvival{protecting("web", true), protecting("big", false)}
	to := newServer()
	c := New(parts.Shared{Client: to, CPUFraction: 1}, Options{})
	r := c.round(cluster.Objects(), asked)
	r.options.Sim.Now = clitest.Now
	require.NoError(t, r.replay(t.Context()))
	require.Equal(t, []string{"web", "big", "reservation", "web"}, to.wrote)
	require.True(t, r.written)
	require.Equal(t, metav1.ConditionFalse, to.says("big", v1alpha1.ConditionSurvives))
	require.Equal(t, metav1.ConditionTrue, to.says("web", v1alpha1.ConditionSurvives))
	require.Equal(t, metav1.ConditionFalse, to.says("web", v1alpha1.ConditionHeld), "the scheduler has yet to hold it")
}

// TestChangedClusterIsUnknown: a change that only a full round can answer makes a certificate Unknown at once. One that is False stays. When
// the cluster is as it was, so is the answer. None of that is an event, nor is it written twice.
func TestChangedClusterIsUnknown(t *testing.T) {
	cluster := webAndBig()
	asked := []*v1alpha1.ZoneSurvival{protecting("web", false), protecting("big", false)}
	to := newServer()
	c := New(parts.Shared{Client: to, CPUFraction: 1}, Options{})
	defer c.certifier.Close()
	look := func(objects []client.Object) *round {
		r := c.round(objects, asked)
		for _, s := range r.asked {
			s.ResourceVersion, s.Status = strconv.Itoa(to.versions[s.Name]), to.statuses[s.Name]
		}
		r.options.Sim.Now, r.options.Fingerprint = clitest.Now, survival.Fingerprint(objects)
		return r
	}
	before := cluster.Objects()
	first := look(before)
	require.NoError(t, first.replay(t.Context()))
	c.answered = first.options.Fingerprint
	require.Equal(t, []string{"web Survives", "big DoesNotSurvive"}, to.events)
	to.wrote, to.events = nil, nil

	changed := slices.Clone(before)
	for i, obj := range changed {
		if node, ok := obj.(*corev1.Node); ok && node.Name == "c" {
			cordoned := node.DeepCopy()
			cordoned.Spec.Unschedulable = true
			changed[i] = cordoned
		}
	}
	for range 2 {
		r := look(changed)
		require.NoError(t, c.follow(t.Context(), r, r.options.Fingerprint))
		require.Equal(t, []string{"web"}, to.wrote)
		require.Equal(t, metav1.ConditionUnknown, to.says("web", v1alpha1.ConditionSurvives))
		require.Equal(t, metav1.ConditionFalse, to.says("big", v1alpha1.ConditionSurvives))
	}
	web := to.statuses["web"]
	require.Equal(t, v1alpha1.ReasonClusterChanged, web.Conditions[0].Reason)
	require.Equal(t, first.options.Fingerprint, web.Snapshot.Hash, "what is known is of the former cluster")

	r := look(before)
	require.NoError(t, c.follow(t.Context(), r, r.options.Fingerprint))
	require.Equal(t, metav1.ConditionTrue, to.says("web", v1alpha1.ConditionSurvives))
	require.Empty(t, to.events)
}

// TestRestartKeepsMetrics: before its first round, a controller shows what the objects say.
func TestRestartKeepsMetrics(t *testing.T) {
	s := protecting("web", false)
	s.Status.ComputedAt = metav1.Unix(1000, 0)
	s.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionSurvives, Status: metav1.ConditionFalse}}
	c := New(parts.Shared{CPUFraction: 1}, Options{})
	c.remember([]*v1alpha1.ZoneSurvival{s})
	got := map[*metrics.Desc]float64{}
	c.collect(func(of *metrics.Desc, value float64, _ ...string) { got[of] = value })
	require.Equal(t, map[*metrics.Desc]float64{declared.Survives: 0, declared.Computed: 1000}, got)
}

// TestReadinessIsFollowed: what is left without a zone is written when the readiness of pods changes, though nothing has to be replayed for it.
func TestReadinessIsFollowed(t *testing.T) {
	cluster := webAndBig()
	asked := protecting("web", false)
	asked.Spec.Impaired = &v1alpha1.SurvivalImpairment{LeastServing: intstr.FromString("50%")}
	cluster.Add(asked)
	to := newServer()
	c := New(parts.Shared{Client: to, CPUFraction: 1}, Options{RefreshInterval: time.Hour})
	look := func() {
		_, err := c.answer(t.Context(), func() *snapshot.Snapshot { return cluster.Snapshot })
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
