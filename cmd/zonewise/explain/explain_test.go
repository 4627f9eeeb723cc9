package explain_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"zonewise.dev/cmd/zonewise/clitest"
	"zonewise.dev/cmd/zonewise/explain"
	"zonewise.dev/cmd/zonewise/show"
	"zonewise.dev/cmd/zonewise/world"
)

func pod(t *testing.T, c *clitest.Cluster, name string, events ...eventsv1.Event) *explain.Report {
	t.Helper()
	w := world.New(c.Snapshot, clitest.Now)
	p := w.Find(clitest.Namespace, name)
	require.NotNil(t, p)
	return explain.Explain(w, p, events)
}

func text(t *testing.T, r *explain.Report, width int) string {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, r.Text(&out, show.Style{Width: width}, clitest.Now))
	return out.String()
}

func TestGolden(t *testing.T) {
	event := eventsv1.Event{
		Reason: "FailedScheduling", Note: "0/6 nodes are available: 6 policy shop/web", EventTime: metav1.NewMicroTime(clitest.Now.Add(-time.Hour)),
		Series: &eventsv1.EventSeries{Count: 3, LastObservedTime: metav1.NewMicroTime(clitest.Now.Add(-time.Minute))},
	}
	c := clitest.Story()
	gang := explain.Gang(world.New(c.Snapshot, clitest.Now), "shop/train", nil)
	for name, report := range map[string]*explain.Report{
		"capped": pod(t, c, "web-1-7", event), "bound": pod(t, c, "web-1-1"), "member": pod(t, c, "train-0"), "gang": gang,
	} {
		t.Run(name, func(t *testing.T) {
			clitest.Golden(t, name+".txt", text(t, report, 0))
			clitest.Golden(t, name+"-40.txt", text(t, report, 40))
			var out bytes.Buffer
			require.NoError(t, show.Object(&out, show.JSON, report))
			clitest.Golden(t, name+".json", out.String())
		})
	}
}

func TestWhatWouldLetItGo(t *testing.T) {
	labels := map[string]string{"app": "p", "scheduling.x-k8s.io/pod-group": "gang"}
	for _, tc := range []struct {
		name  string
		build func(c *clitest.Cluster) *corev1.Pod
		want  []string
	}{
		{"a scheduler", func(c *clitest.Cluster) *corev1.Pod {
			p := c.Pod("p", "", clitest.Plain("1", "1Gi"), nil)
			p.Spec.SchedulerName = "zonewize"
			return p
		}, []string{`No scheduler has said anything about it: is one running that is called "zonewize"?`}},
		{"time", func(c *clitest.Cluster) *corev1.Pod {
			p := c.Pod("p", "", clitest.Plain("1", "1Gi"), nil)
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/1"}}
			return p
		}, []string{"of its last attempt; it tries again when something changes"}},
		{"a gate", func(c *clitest.Cluster) *corev1.Pod {
			p := c.Pod("p", "", clitest.Plain("1", "1Gi"), nil)
			p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "quota"}}
			return p
		}, []string{"its scheduling gates must be removed: quota"}},
		{
			"room", func(c *clitest.Cluster) *corev1.Pod { return c.Pod("p", "", clitest.Plain("10", "1Gi"), nil) },
			[]string{"in zone a: 2 more cpu (8 free, 10 asked for) on node node-a"},
		},
		{
			"a PodGroup", func(c *clitest.Cluster) *corev1.Pod { return c.Pod("p", "", clitest.Plain("1", "1Gi"), labels) },
			[]string{"PodGroup shop/gang must exist"},
		},
		{"members", func(c *clitest.Cluster) *corev1.Pod {
			c.Gang("gang", 3)
			return c.Pod("p", "", clitest.Plain("1", "1Gi"), labels)
		}, []string{"PodGroup shop/gang needs 3 members and has 1: 2 more pods must be made"}},
		{"room for all members", func(c *clitest.Cluster) *corev1.Pod {
			c.Gang("gang", 2)
			c.Pod("first", "", clitest.Plain("5", "1Gi"), labels)
			return c.Pod("p", "", clitest.Plain("5", "1Gi"), labels)
		}, []string{"PodGroup shop/gang needs 2 more members at once, and 1 of them fit now; p is the first that does not"}},
		{"the gang's backoff", func(c *clitest.Cluster) *corev1.Pod {
			c.Gang("gang", 1)
			return c.Pod("p", "", clitest.Plain("1", "1Gi"), labels)
		}, []string{"The scheduler tries again after its backoff"}},
		{"less at a time", func(c *clitest.Cluster) *corev1.Pod {
			c.Nodes[0].Spec.Unschedulable = true
			return c.Pod("p", "", clitest.Plain("10", "1Gi"), nil)
		}, []string{"no single change: every node has several obstacles"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := clitest.New()
			c.Node("node-a", "a", "8", "8Gi")
			p := tc.build(c)
			steps := strings.Join(pod(t, c, p.Name).Next, "\n")
			for _, want := range tc.want {
				require.Contains(t, steps, want)
			}
		})
	}
}

func TestTheCurrentWordsOfMembersComeFirst(t *testing.T) {
	c := clitest.Story()
	for i, words := range []string{"needs 4, plan found 3: 1 node short of cpu", "needs 4, plan found 1: 5 nodes short of cpu", "needs 4, plan found 3: 1 node short of cpu", "needs 4, plan found 2: 6 nodes short of cpu"} {
		for k := range c.Pods {
			if c.Pods[k].Name == fmt.Sprintf("train-%d", i) {
				c.Pods[k].Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "PodGroup shop/train: " + words}}
			}
		}
	}
	r := explain.Gang(world.New(c.Snapshot, clitest.Now), "shop/train", []eventsv1.Event{{Reason: "GangRolledBack", Note: "of long ago"}})
	var words []string
	for _, s := range r.Said {
		words = append(words, s.Words)
	}
	require.Equal(t, []string{"PodGroup shop/train: needs 4, plan found 2: 6 nodes short of cpu", "PodGroup shop/train: needs 4, plan found 3: 1 node short of cpu", "of long ago"}, words)
}

func TestGangOfNobody(t *testing.T) {
	w := world.New(clitest.Story().Snapshot, clitest.Now)
	require.Nil(t, explain.Gang(w, "shop/nobody", nil))
	whole := explain.Gang(w, "shop/whole", nil)
	require.Zero(t, whole.Gang.Missing)
	require.Empty(t, whole.Next)
}

func TestExplainingChangesNothing(t *testing.T) {
	c := clitest.Story()
	w := world.New(c.Snapshot, clitest.Now)
	before := w.Rooms()
	explain.Gang(w, "shop/train", nil)
	explain.Explain(w, w.Find(clitest.Namespace, "train-0"), nil)
	require.Equal(t, before, w.Rooms())
}
