package integration

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/component-base/metrics/testutil"
	configv1 "k8s.io/kube-scheduler/config/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
	"k8s.io/utils/ptr"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/test/build"
)

const (
	argsList      = `{"defaultingType":"List"}`
	argsListOfOne = `{"defaultingType":"List","defaultConstraints":[{"maxSkew":1,"topologyKey":"topology.kubernetes.io/zone","whenUnsatisfiable":"ScheduleAnyway"}]}`
	argsSystem    = `{"defaultingType":"System"}`
)

// batchingProfile is a profile whose pods are looked at.
type batchingProfile struct {
	name    string
	inTree  bool   // upstream's plugins only, PodTopologySpread with args
	args    string // of ZoneSpread, or of PodTopologySpread
	options []podOption
	batched bool
}

// apply makes the profile from the one that is shipped.
func (b *batchingProfile) apply(shipped *configv1.KubeSchedulerProfile) configv1.KubeSchedulerProfile {
	profile := shipped.DeepCopy()
	profile.SchedulerName = ptr.To(b.name)
	args := runtime.RawExtension{Raw: []byte(b.args)}
	if b.inTree {
		profile.Plugins = nil
		args.Raw = fmt.Appendf(nil, `{"apiVersion":"kubescheduler.config.k8s.io/v1","kind":"PodTopologySpreadArgs",%s`, b.args[1:])
		profile.PluginConfig = []configv1.PluginConfig{{Name: "PodTopologySpread", Args: args}}
		return *profile
	}
	for i := range profile.PluginConfig {
		if profile.PluginConfig[i].Name == "ZoneSpread" {
			profile.PluginConfig[i].Args = args
		}
	}
	return *profile
}

// hintsUsed is how many pods of a profile the framework has placed by the result of the pod before them, without
// looking at all nodes.
func hintsUsed(t *testing.T, profile string) int {
	t.Helper()
	n, err := testutil.GetCounterMetricValue(metrics.BatchAttemptStats.WithLabelValues(profile, metrics.BatchAttemptHintUsed))
	require.NoError(t, err)
	return int(n)
}

// TestBatching: with the pack, pods that are alike are placed in batches where they are with upstream's plugins, and pods under
// a policy are not.
func TestBatching(t *testing.T) {
	const each = 8
	w := newPolicyWorld(t)
	w.addNodes("64", "a1", "a2", "b1", "b2", "c1", "c2")
	policy := w.spreadBy("web", func(s *v1alpha1.ZoneSpreadPolicySpec) {
		s.PodSelector = metav1.LabelSelector{MatchLabels: map[string]string{"policy": "yes"}}
	})
	spread := []podOption{ofApp("web", 5, soft)}
	cases := []batchingProfile{
		{name: "b1-in-tree-list", inTree: true, args: argsList, batched: true},
		{name: "b1-list", args: argsList, batched: true},
		{name: "b2-in-tree-list-spread", inTree: true, args: argsList, options: spread},
		{name: "b2-list-spread", args: argsList, options: spread},
		{name: "b3-in-tree-defaults", inTree: true, args: argsListOfOne},
		{name: "b3-defaults", args: argsListOfOne},
		{name: "b4-in-tree-system", inTree: true, args: argsSystem},
		{name: "b4-system", args: argsSystem},
		{name: "b5-in-tree-hard", inTree: true, args: argsList, options: []podOption{ofApp("hard-in-tree", 1, hard)}},
		{name: "b5-hard", args: argsList, options: []podOption{ofApp("hard", 1, hard)}},
		// What upstream does not have.
		{name: "b6-policy", args: argsList, options: []podOption{build.Label("policy", "yes")}},
		{name: "b6-no-policy", args: argsList, options: []podOption{build.Label("policy", "no")}, batched: true},
	}
	// Only pods that follow one another are batched, and pods are signed when they are queued. So all are queued when the policy is
	// known, while the scheduler is held up with another pod, and each profile's have a priority of their own.
	held, release := make(chan struct{}), make(chan struct{})
	goOn := sync.OnceFunc(func() { close(release) })
	t.Cleanup(goOn)
	h := &hook{reserve: func(pod *v1.Pod) *fwk.Status {
		if pod.Name == "first" {
			close(held)
			<-release
		}
		return nil
	}}
	metrics.Register() // as a scheduler does; they belong to the process and outlive it
	before := map[string]int{}
	for _, c := range cases {
		before[c.name] = hintsUsed(t, c.name)
	}
	s := w.startScheduler(withTestPlugin(hookName, h.factory()), edited(func(c *configv1.KubeSchedulerConfiguration) {
		shipped := c.Profiles[0]
		c.Profiles = nil
		for i := range cases {
			c.Profiles = append(c.Profiles, cases[i].apply(&shipped))
		}
	}))
	w.create(newPod("first", "100m", build.Scheduler(cases[1].name)))
	<-held
	w.waitStatus(policy, "known", func(s *v1alpha1.ZoneSpreadPolicyStatus) bool {
		return hasCondition(s, v1alpha1.ConditionAccepted, metav1.ConditionTrue)
	})
	for i, c := range cases {
		class := w.createPriorityClass(int32(i + 1))
		w.create(newPods(each, c.name, "100m", append(c.options, build.Scheduler(c.name), build.PriorityClass(class))...)...)
	}
	w.eventually("all are queued", func() (bool, string) {
		n := len(s.sched.SchedulingQueue.PodsInActiveQ())
		return n == each*len(cases), fmt.Sprint(n)
	})
	goOn()
	w.waitBoundCount(1+each*len(cases), nil)
	for _, c := range cases {
		got := hintsUsed(t, c.name) - before[c.name]
		t.Logf("%s: %d of %d pods placed by a hint", c.name, got, each)
		if c.batched {
			require.Positive(t, got, c.name)
		} else {
			require.Zero(t, got, c.name)
		}
	}
}
