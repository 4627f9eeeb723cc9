package performance

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	schedv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/plugins"
	"zonewise.dev/sim"
	"zonewise.dev/test/crdtest"
)

// waitingGangs are gangs of twenty whose members ask for more than a node of reserveNodes has left.
func waitingGangs(n int) (groups []client.Object, members []*v1.Pod) {
	for i := range n {
		name := fmt.Sprint("gang-", i)
		groups = append(groups, &schedv1alpha1.PodGroup{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)},
			Spec:       schedv1alpha1.PodGroupSpec{MinMember: 20},
		})
		for k := range 20 {
			pod := fmt.Sprintf("%s-%d", name, k)
			members = append(members, st.MakePod().Namespace("default").Name(pod).UID(pod).SchedulerName(v1.DefaultSchedulerName).
				Label(schedv1alpha1.PodGroupLabel, name).Req(map[v1.ResourceName]string{v1.ResourceCPU: "16"}).Obj())
		}
	}
	return groups, members
}

// newGangCluster makes a scheduler with the shipped profile that has tried everything and runs no longer.
func newGangCluster(b *testing.B, nodes []*v1.Node, pods []*v1.Pod, groups []client.Object) *cycler {
	b.Helper()
	cfg, err := sim.DefaultConfig()
	require.NoError(b, err)
	pack := plugins.NewPack(plugins.WithoutElection(), plugins.WithSource(crdtest.New(groups...)))
	ctx, cancel := context.WithCancel(context.Background())
	b.Cleanup(cancel)
	c := &cycler{client: newAPI(nodes, pods)}
	c.scheduler = newScheduler(ctx, b, c.client, cfg.Profiles, frameworkruntime.Registry(pack.Factories()))
	running, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.scheduler.Run(running)
	}()
	require.Eventually(b, func() bool { return c.queueEmpty() && pack.Idle() && c.membersUnschedulable(b) }, time.Hour, time.Second)
	stop()
	<-ended
	return c
}

// membersUnschedulable reports whether every member of a gang has been told that there is no room.
func (c *cycler) membersUnschedulable(b *testing.B) bool {
	b.Helper()
	members, err := c.client.CoreV1().Pods(metav1.NamespaceAll).List(b.Context(), metav1.ListOptions{LabelSelector: schedv1alpha1.PodGroupLabel})
	require.NoError(b, err)
	for i := range members.Items {
		_, is := podutil.GetPodCondition(&members.Items[i].Status, v1.PodScheduled)
		if is == nil || is.Status != v1.ConditionFalse || is.Reason != v1.PodReasonUnschedulable {
			return false
		}
	}
	return true
}

// BenchmarkPermitGateWaiting is the scheduling cycle of a plain pod on 5,000 nodes under the shipped profile, with a
// cordon a second: beside no gang, and beside a hundred gangs of twenty that wait for room. The two take turns of
// twenty milliseconds.
//
//	none-us, beside-us        medians
//	ratio                     of the two, and of their means and 99th percentiles
func BenchmarkPermitGateWaiting(b *testing.B) {
	nodes, pods := reserveNodes(5000)
	groups, members := waitingGangs(100)
	none, beside := newGangCluster(b, nodes, pods, nil), newGangCluster(b, nodes, append(pods, members...), groups)
	for _, c := range []*cycler{none, beside} {
		c.cycles(b, nodes, 500*time.Millisecond)
	}
	took := inTurns(b, nodes, none, beside)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(us(took[0].median()), "none-us")
	b.ReportMetric(us(took[1].median()), "beside-us")
	reportRatios(b, took[1], took[0])
}
