package survival

import (
	"context"
	"errors"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/test/clitest"
)

// server takes what a controller writes, in that order. As an API server does, it refuses what is based on an old resourceVersion.
type server struct {
	client.Client
	wrote    []string
	versions map[string]int
	statuses map[string]v1alpha1.ZoneSurvivalStatus
}

func newServer() *server {
	return &server{versions: map[string]int{}, statuses: map[string]v1alpha1.ZoneSurvivalStatus{}}
}

func (s *server) Status() client.SubResourceWriter { return &statusWriter{server: s} }

func (s *server) Create(context.Context, client.Object, ...client.CreateOption) error {
	return nil // events
}

func (s *server) Apply(context.Context, runtime.ApplyConfiguration, ...client.ApplyOption) error {
	s.wrote = append(s.wrote, "reservation")
	return nil
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

// TestCertificatesComeFirst: room is planned only when all certificates are written. What is held then has a write of its own, which the
// API server takes.
func TestCertificatesComeFirst(t *testing.T) {
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
	asked := []*v1alpha1.ZoneSurvival{protecting("web", true), protecting("big", false)}
	to := newServer()
	c := New(nil, to, Options{CPUFraction: 1})
	r := c.round(cluster.Objects(), asked)
	r.options.Sim.Now = clitest.Now
	require.NoError(t, r.replay(t.Context()))
	require.Equal(t, []string{"web", "big", "reservation", "web"}, to.wrote)
	require.True(t, r.written)
	says := func(name, condition string) metav1.ConditionStatus {
		conditions := to.statuses[name].Conditions
		return meta.FindStatusCondition(conditions, condition).Status
	}
	require.Equal(t, metav1.ConditionFalse, says("big", v1alpha1.ConditionSurvives))
	require.Equal(t, metav1.ConditionTrue, says("web", v1alpha1.ConditionSurvives))
	require.Equal(t, metav1.ConditionFalse, says("web", v1alpha1.ConditionHeld), "the scheduler has yet to hold it")
}
