package performance

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
)

// cycler runs scheduling cycles of plain pods by hand.
type cycler struct {
	client    *fake.Clientset
	scheduler *scheduler.Scheduler
	// cordons counts the nodes that were cordoned, the last one at the time cordoned.
	cordons  int
	cordoned time.Time
}

// queueEmpty reports whether no pod is about to be tried.
func (c *cycler) queueEmpty() bool {
	_, summary := c.scheduler.SchedulingQueue.PendingPods()
	return strings.Contains(summary, "activeQ:0") && strings.Contains(summary, "backoffQ:0")
}

// cycles schedules plain pods one by one for a while, with a cordon a second, and returns how long each cycle took,
// from the snapshot to the scores. A pod is assumed and the one before it forgotten between cycles.
func (c *cycler) cycles(b *testing.B, nodes []*v1.Node, d time.Duration) (took spreadSamples) {
	b.Helper()
	ctx, fw := b.Context(), c.scheduler.Profiles[v1.DefaultSchedulerName]
	snapshot := fw.SnapshotSharedLister().(*cache.Snapshot)
	var last *v1.Pod
	var lastState *framework.CycleState
	undo := func() {
		if last != nil {
			fw.RunReservePluginsUnreserve(ctx, lastState, last, last.Spec.NodeName)
			require.NoError(b, c.scheduler.Cache.ForgetPod(klog.Logger{}, last))
		}
	}
	for end := time.Now().Add(d); time.Now().Before(end); {
		if time.Since(c.cordoned) >= time.Second {
			c.cordons++
			c.cordoned = time.Now()
			n := nodes[c.cordons*7919%len(nodes)].DeepCopy()
			n.Spec.Unschedulable = true
			_, err := c.client.CoreV1().Nodes().Update(ctx, n, metav1.UpdateOptions{})
			require.NoError(b, err)
		}
		name := fmt.Sprintf("plain-%d", len(took)%2)
		pod := st.MakePod().Namespace("default").Name(name).UID(name).SchedulerName(v1.DefaultSchedulerName).
			Req(map[v1.ResourceName]string{v1.ResourceCPU: "100m", v1.ResourceMemory: "128Mi"}).Obj()
		info, err := framework.NewPodInfo(pod)
		require.NoError(b, err)
		state := framework.NewCycleState()
		start := time.Now()
		require.NoError(b, c.scheduler.Cache.UpdateSnapshot(klog.Logger{}, snapshot))
		result, err := c.scheduler.SchedulePod(ctx, fw, state, &framework.QueuedPodInfo{PodInfo: info})
		took = append(took, time.Since(start))
		require.NoError(b, err)
		undo()
		last, lastState = pod.DeepCopy(), state
		last.Spec.NodeName = result.SuggestedHost
		require.NoError(b, c.scheduler.Cache.AssumePod(klog.Logger{}, last))
		require.True(b, fw.RunReservePluginsReserve(ctx, state, pod, result.SuggestedHost).IsSuccess())
	}
	undo()
	return took
}

// inTurns runs cycles in clusters with the same nodes, in turns of twenty milliseconds, and returns the times of each
// cluster.
func inTurns(b *testing.B, nodes []*v1.Node, clusters ...*cycler) []spreadSamples {
	b.Helper()
	took := make([]spreadSamples, len(clusters))
	for b.Loop() {
		for end := time.Now().Add(6 * time.Second); time.Now().Before(end); {
			for i, c := range clusters {
				took[i] = append(took[i], c.cycles(b, nodes, 20*time.Millisecond)...)
			}
		}
	}
	return took
}

// reportRatios compares the cycles beside something with those without it.
func reportRatios(b *testing.B, beside, without spreadSamples) {
	b.Helper()
	b.ReportMetric(us(beside.median())/us(without.median()), "ratio")
	b.ReportMetric(us(beside.mean())/us(without.mean()), "mean-ratio")
	b.ReportMetric(us(beside.percentile(99))/us(without.percentile(99)), "p99-ratio")
}

func us(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }
