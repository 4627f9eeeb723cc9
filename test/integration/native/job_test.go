package native

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/kubernetes/pkg/controller/job"
	"k8s.io/utils/ptr"

	"zonewise.dev/plugins/permitgate/native"
	"zonewise.dev/test/build"
)

// TestJobWithMoreCompletionsThanParallelism: the pods of a Job with spec.scheduling come in waves, each of which is
// bound as a whole. If fewer are left than minCount, they wait: kube-scheduler does not count members that have
// succeeded. Guarded, the PodGroup says so. With a lower minCount they are bound.
func TestJobWithMoreCompletionsThanParallelism(t *testing.T) {
	const parallelism, completions = 3, 7
	c := startCluster(t)
	for _, mode := range []struct{ name, args string }{{"Guard", guarded}, {"GangScheduling alone", alone}} {
		c.run(mode.name, mode.args, func(c *cluster) {
			stop := c.startJobController()
			c.createJob(parallelism, completions)
			for wave := range 2 {
				c.eventually("a wave is bound", func() bool { return len(c.running()) == parallelism })
				require.Len(c.t, c.bound(), parallelism*(wave+1))
				stop() // so that it sees all of them end at once
				c.succeed(c.running()...)
				stop = c.startJobController()
			}
			c.eventually("the last pod exists", func() bool { return len(c.unbound()) == 1 })
			last := c.unbound()[0]
			if mode.args == guarded {
				c.eventually("the PodGroup says what it waits for", func() bool {
					status, message := c.conditionOf(*last.Spec.SchedulingGroup.PodGroupName, native.ConditionFits)
					return status == metav1.ConditionFalse && strings.Contains(message, "needs 3 members, 1 exist; kube-scheduler counts no pods that have succeeded")
				})
			}
			require.Len(c.t, c.unbound(), 1)
			_, err := c.admin.BatchV1().Jobs(c.namespace).Patch(c.t.Context(), "train", types.MergePatchType,
				[]byte(`{"spec":{"scheduling":{"schedulingPolicy":{"gang":{"minCount":1}}}}}`), metav1.PatchOptions{})
			require.NoError(c.t, err)
			c.eventually("the last pod is bound", func() bool { return len(c.running()) == 1 })
			c.succeed(c.running()...)
			c.eventually("the Job is complete", func() bool {
				job, err := c.admin.BatchV1().Jobs(c.namespace).Get(c.t.Context(), "train", metav1.GetOptions{})
				require.NoError(c.t, err)
				return job.Status.CompletionTime != nil
			})
		})
	}
}

// startJobController runs that of kube-controller-manager until the test ends or stop is called.
func (c *cluster) startJobController() (stop func()) {
	c.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	factory := informers.NewSharedInformerFactory(c.admin, 0)
	scheduling := factory.Scheduling().V1beta1()
	jobs, err := job.NewController(ctx, c.admin, factory.Core().V1().Pods(), factory.Batch().V1().Jobs(), scheduling.Workloads(), scheduling.PodGroups())
	require.NoError(c.t, err)
	factory.Start(ctx.Done())
	done := make(chan struct{})
	go func() {
		defer close(done)
		jobs.Run(ctx, 1)
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		<-done
		factory.Shutdown()
	})
	c.t.Cleanup(stop)
	return stop
}

func (c *cluster) createJob(parallelism, completions int32) {
	c.t.Helper()
	pod := build.Pod("train", "1", build.Namespace(c.namespace))
	pod.Spec.RestartPolicy = v1.RestartPolicyNever
	created := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "train"},
		Spec: batchv1.JobSpec{
			Parallelism: ptr.To(parallelism), Completions: ptr.To(completions),
			Template: v1.PodTemplateSpec{Spec: pod.Spec},
			Scheduling: &batchv1.JobSchedulingConfiguration{SchedulingPolicy: &schedulingv1alpha3.WorkloadPodGroupSchedulingPolicy{
				Gang: &schedulingv1alpha3.WorkloadPodGroupGangSchedulingPolicy{},
			}},
		},
	}
	c.create(created)
	require.NotNil(c.t, created.Spec.Scheduling, "the API server has the feature")
}

// running lists the pods that are bound and have not ended.
func (c *cluster) running() []v1.Pod {
	return c.podsThat(func(pod *v1.Pod) bool { return pod.Spec.NodeName != "" && pod.Status.Phase != v1.PodSucceeded })
}

func (c *cluster) unbound() []v1.Pod {
	return c.podsThat(func(pod *v1.Pod) bool { return pod.Spec.NodeName == "" })
}

func (c *cluster) podsThat(matches func(pod *v1.Pod) bool) (found []v1.Pod) {
	c.t.Helper()
	pods, err := c.admin.CoreV1().Pods(c.namespace).List(c.t.Context(), metav1.ListOptions{})
	require.NoError(c.t, err)
	for i := range pods.Items {
		if matches(&pods.Items[i]) {
			found = append(found, pods.Items[i])
		}
	}
	return found
}

// succeed does what a kubelet does when pods end.
func (c *cluster) succeed(pods ...v1.Pod) {
	c.t.Helper()
	for i := range pods {
		_, err := c.admin.CoreV1().Pods(c.namespace).Patch(c.t.Context(), pods[i].Name, types.MergePatchType,
			[]byte(`{"status":{"phase":"Succeeded"}}`), metav1.PatchOptions{}, "status")
		require.NoError(c.t, err)
	}
}
