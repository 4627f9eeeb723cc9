package board

import (
	"bufio"
	"context"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	schedv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/test/internal/apiserver"
)

// namespace is where the pods of the tests are.
const namespace = apiserver.Namespace

// cluster is an API server without a scheduler: the tests bind pods themselves.
type cluster struct{ *apiserver.Server }

func start(t *testing.T) *cluster {
	t.Helper()
	return &cluster{apiserver.Start(t)}
}

// pod makes a pod, on a node unless that is empty.
func (c *cluster) pod(t *testing.T, name, cpu, node string, labels map[string]string) *corev1.Pod {
	t.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
		Spec: corev1.PodSpec{NodeName: node, TerminationGracePeriodSeconds: ptr.To[int64](0), Containers: []corev1.Container{{
			Name: "c", Image: "registry.example.com/none",
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}},
		}}},
	}
	c.Make(t, p)
	return p
}

// bind gives a pod a node.
func (c *cluster) bind(t *testing.T, p *corev1.Pod, node string) {
	t.Helper()
	require.NoError(t, c.SubResource("binding").Create(t.Context(), p, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: node},
	}))
}

// said writes on a pod what a scheduler would.
func (c *cluster) said(t *testing.T, p *corev1.Pod, message string) {
	t.Helper()
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: message}}
	require.NoError(t, c.Status().Update(t.Context(), p))
}

// workload makes what there is to see: a policy that is not obeyed, slots that are held, a gang that fits nowhere and a
// pod that will move.
func (c *cluster) workload(t *testing.T) (mover *corev1.Pod, gang []*corev1.Pod) {
	t.Helper()
	web := map[string]string{"app": "web"}
	policy := &v1alpha1.ZoneSpreadPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"},
		Spec: v1alpha1.ZoneSpreadPolicySpec{PodSelector: metav1.LabelSelector{MatchLabels: web}, Zones: []v1alpha1.ZoneSpreadZone{
			{Name: "a", MaxPods: ptr.To[int32](2)}, {Name: "b"}, {Name: "c"},
		}},
	}
	held := &v1alpha1.ZoneReservation{
		ObjectMeta: metav1.ObjectMeta{Name: "failover"},
		Spec: v1alpha1.ZoneReservationSpec{
			Owners: []v1alpha1.ReservationOwner{{Namespace: namespace, PodSelector: metav1.LabelSelector{MatchLabels: web}}},
			Slot:   v1alpha1.ReservationSlot{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}},
			Zones:  []v1alpha1.ReservationZone{{Name: "c", Slots: 2}},
		},
	}
	c.Make(t, policy, held, &schedv1alpha1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "train"}, Spec: schedv1alpha1.PodGroupSpec{MinMember: 2}})
	policy.Status = v1alpha1.ZoneSpreadPolicyStatus{
		ObservedGeneration: policy.Generation, Replicas: 3, Pods: 3, Skew: 2,
		Zones: []v1alpha1.ZoneStatus{
			{Name: "a", Pods: 2, Desired: 1, State: v1alpha1.ZoneAvailable}, {Name: "b", Pods: 1, Desired: 1, State: v1alpha1.ZoneAvailable}, {Name: "c", Desired: 1, State: v1alpha1.ZoneAvailable},
		},
		Conditions: []metav1.Condition{
			{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAccepted, LastTransitionTime: metav1.Now()},
			{Type: v1alpha1.ConditionSatisfied, Status: metav1.ConditionFalse, Reason: "SkewExceeded", Message: "zone a is 2 pods ahead of zone c", LastTransitionTime: metav1.Now()},
		},
	}
	require.NoError(t, c.Status().Update(t.Context(), policy))
	held.Status.Slots = v1alpha1.SlotCounts{Desired: 2, Held: 2}
	held.Status.Zones = []v1alpha1.ReservationZoneStatus{{Name: "c", SlotCounts: v1alpha1.SlotCounts{Desired: 2, Held: 2}, Nodes: []v1alpha1.ReservationNodeStatus{{Name: "node-c", Slots: 2}}}}
	held.Status.Conditions = []metav1.Condition{
		{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAccepted, LastTransitionTime: metav1.Now()},
		{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAllHeld, LastTransitionTime: metav1.Now()},
	}
	require.NoError(t, c.Status().Update(t.Context(), held))
	survival := &v1alpha1.ZoneSurvival{
		ObjectMeta: metav1.ObjectMeta{Name: "services"},
		Spec: v1alpha1.ZoneSurvivalSpec{
			Workloads: []v1alpha1.SurvivalWorkload{{Namespace: namespace, PodSelector: metav1.LabelSelector{MatchLabels: web}}},
			Survive:   v1alpha1.SurvivalLosses{Zones: ptr.To[int32](1)},
		},
	}
	c.Make(t, survival)
	survival.Status = certificate(survival.Generation)
	require.NoError(t, c.Status().Update(t.Context(), survival))
	for name, node := range map[string]string{"web-0": "node-a", "web-1": "node-a", "web-2": "node-b"} {
		c.pod(t, name, "500m", node, web)
	}
	mover = c.pod(t, "mover", "100m", "node-a", nil)
	for _, name := range []string{"train-0", "train-1"} {
		member := c.pod(t, name, "3900m", "", map[string]string{schedv1alpha1.PodGroupLabel: "train"})
		c.said(t, member, "PodGroup shop/train: no plan for 2 members")
		gang = append(gang, member)
	}
	return mover, gang
}

// certificate says that a pod would wait without zone a.
func certificate(generation int64) v1alpha1.ZoneSurvivalStatus {
	return v1alpha1.ZoneSurvivalStatus{
		ObservedGeneration: generation, ComputedAt: metav1.Now(), Pods: 3,
		Losses: []v1alpha1.SurvivalLoss{
			{Zone: "a", Nodes: 1, Displaced: 2, Placed: 1, Waiting: 1, Witnesses: []v1alpha1.SurvivalWitness{{Namespace: namespace, Name: "web-1", Why: "0/2 nodes are available"}}},
			{Zone: "b", Nodes: 1, Displaced: 1, Placed: 1, Margin: []v1alpha1.SurvivalMargin{{
				Zone: "c", Free: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}, Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")},
			}}},
		},
		Conditions: []metav1.Condition{{
			Type: v1alpha1.ConditionSurvives, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonPodsWait, LastTransitionTime: metav1.Now(),
			Message: "without zone a, 1 of 2 displaced pods would wait, first shop/web-1: 0/2 nodes are available",
		}},
	}
}

// served is a board that runs.
type served struct {
	url  string
	cmd  *exec.Cmd
	ends chan error
}

// serve runs the command until the test ends, or interrupt is called.
func serve(t *testing.T, zonewise string, args ...string) *served {
	t.Helper()
	s := &served{cmd: exec.Command(zonewise, append([]string{"board"}, args...)...), ends: make(chan error, 1)}
	var errs strings.Builder
	s.cmd.Stderr = &errs
	out, err := s.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, s.cmd.Start())
	t.Cleanup(func() { s.interrupt(t) })
	address := make(chan string, 1)
	go func() {
		url := regexp.MustCompile(`http://\S+/`)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if found := url.FindString(lines.Text()); found != "" {
				address <- found
			}
		}
		s.ends <- s.cmd.Wait()
		close(s.ends)
	}()
	limited, cancel := context.WithTimeout(t.Context(), apiserver.Eventually)
	defer cancel()
	select {
	case s.url = <-address:
	case err := <-s.ends:
		require.FailNow(t, "the board did not start", "%v\n%s", err, errs.String())
	case <-limited.Done():
		require.FailNow(t, "the board does not start")
	}
	return s
}

// interrupt ends the command as Ctrl-C does; it must end well.
func (s *served) interrupt(t *testing.T) {
	t.Helper()
	if s.cmd.ProcessState != nil {
		return
	}
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGINT))
	require.NoError(t, <-s.ends)
}
