package policy

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

func TestOwnerOf(t *testing.T) {
	meta := metav1.ObjectMeta{UID: "uid"}
	template := v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}}}
	for _, replicas := range []*int32{nil, ptr.To[int32](7)} {
		want := int64(ptr.Deref(replicas, 1))
		for _, w := range []metav1.Object{
			&appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Replicas: replicas, Template: template, Strategy: appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}}},
			&appsv1.ReplicaSet{ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Replicas: replicas, Template: template}},
			&appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Replicas: replicas, Template: template}},
			&batchv1.Job{ObjectMeta: meta, Spec: batchv1.JobSpec{Parallelism: replicas, Template: template}},
			&v1.ReplicationController{ObjectMeta: meta, Spec: v1.ReplicationControllerSpec{Replicas: replicas, Template: &template}},
		} {
			o, ok := OwnerOf(w)
			require.True(t, ok)
			require.Equal(t, Owner{UID: "uid", TemplateLabels: template.Labels, Replicas: want}, o, "%T", w)
		}
	}
	_, ok := OwnerOf(&v1.Pod{})
	require.False(t, ok)
}

func TestJobReplicas(t *testing.T) {
	for name, c := range map[string]struct {
		job  batchv1.Job
		want int64
	}{
		"one pod":        {batchv1.Job{}, 1},
		"work queue":     {batchv1.Job{Spec: batchv1.JobSpec{Parallelism: ptr.To[int32](4)}, Status: batchv1.JobStatus{Succeeded: 9}}, 4},
		"the last ones":  {batchv1.Job{Spec: batchv1.JobSpec{Parallelism: ptr.To[int32](4), Completions: ptr.To[int32](10)}, Status: batchv1.JobStatus{Succeeded: 8}}, 2},
		"suspended":      {batchv1.Job{Spec: batchv1.JobSpec{Parallelism: ptr.To[int32](4), Suspend: ptr.To(true)}}, 0},
		"complete":       {batchv1.Job{Spec: batchv1.JobSpec{Parallelism: ptr.To[int32](4)}, Status: batchv1.JobStatus{CompletionTime: &metav1.Time{Time: time.Unix(1, 0)}}}, 0},
		"failed":         {batchv1.Job{Status: batchv1.JobStatus{Conditions: []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: v1.ConditionTrue}}}}, 0},
		"more than done": {batchv1.Job{Spec: batchv1.JobSpec{Completions: ptr.To[int32](1)}, Status: batchv1.JobStatus{Succeeded: 3}}, 0},
	} {
		require.Equal(t, c.want, JobReplicas(&c.job), name)
	}
}

func TestReplaceFirst(t *testing.T) {
	rolling := func(unavailable, surge string) *appsv1.Deployment {
		u, s := intstr.Parse(unavailable), intstr.Parse(surge)
		return &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Strategy: appsv1.DeploymentStrategy{
			Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: &appsv1.RollingUpdateDeployment{MaxUnavailable: &u, MaxSurge: &s},
		}}}
	}
	for name, c := range map[string]struct {
		d        *appsv1.Deployment
		replicas int32
		want     bool
	}{
		"recreate":                    {&appsv1.Deployment{Spec: appsv1.DeploymentSpec{Strategy: appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}}}, 3, false},
		"defaults, few":               {&appsv1.Deployment{}, 3, true},
		"defaults, many":              {&appsv1.Deployment{}, 4, false},
		"surge only":                  {rolling("0", "1"), 10, true},
		"percent that comes to none":  {rolling("10%", "1"), 9, true},
		"percent that comes to one":   {rolling("10%", "1"), 10, false},
		"neither: one goes after all": {rolling("0", "0"), 10, false},
		"malformed":                   {rolling("x", "1"), 10, false},
	} {
		c.d.Spec.Replicas = &c.replicas
		o, ok := OwnerOf(c.d)
		require.True(t, ok)
		require.Equal(t, c.want, o.ReplaceFirst, name)
		require.Equal(t, int64(c.replicas), o.Replicas, name)
	}
}
