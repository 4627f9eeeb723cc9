package integration

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	configv1 "k8s.io/kube-scheduler/config/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/ptr"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/plugins"
	"zonewise.dev/plugins/permitgate"
)

// TestLauncherAndWorkers: only one node takes the launcher, and the workers, who come first, leave it.
func TestLauncherAndWorkers(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"zonewise.yaml", "permitgate.yaml"} {
		t.Run(file, func(t *testing.T) {
			w := newWorld(t)
			w.addNodes("4", "a1", "b1")
			w.addNodes("6", "c1")
			w.startScheduler(configured(file))
			w.createGroup("train", 9, 0)
			workers := w.create(newPods(8, "worker", "1", inGroup("train"))...)
			launcher := w.create(newPod("launcher", "6", inGroup("train")))[0]
			w.waitBound(append(workers, launcher)...)
			require.Equal(t, "c1", w.pod(launcher).Spec.NodeName)
		})
	}
}

// TestGangThatCannotBeSpread: members count each other before any of them is bound, and a zone that is full
// keeps the gang back as a whole.
func TestGangThatCannotBeSpread(t *testing.T) {
	w := newWorld(t)
	w.addNodes("8", "a1", "b1")
	w.addNodes("1", "c1")
	w.startScheduler()
	w.createGroup("train", 9, 0)
	gang := w.create(newPods(9, "train", "1", inGroup("train"), ofApp("train", 1, hard))...)
	w.waitEvent("PodGroup", "train", "GangRolledBack: PodGroup "+w.namespace+"/train: member train-")
	w.requirePending(gang...)
	w.addNodes("2", "c2")
	w.waitBound(gang...)
	require.Equal(t, map[string]int{"zone-a": 3, "zone-b": 3, "zone-c": 3}, w.byZone(labelled("train")))
}

// TestGangKeepsZonePolicies: minZones is asked of the gang as a whole. It holds nothing in the zones that
// there are while it waits for the third.
func TestGangKeepsZonePolicies(t *testing.T) {
	w := newPolicyWorld(t)
	w.addNodes("4", "a1", "b1")
	w.spreadBy("web", func(s *v1alpha1.ZoneSpreadPolicySpec) { s.MinZones = ptr.To[int32](3) })
	w.startScheduler()
	w.createGroup("train", 6, 0)
	gang := w.create(newPods(6, "train", "1", inGroup("train"), withLabel("app", "web"))...)
	w.world.waitEvent("PodGroup", "train", "GangRolledBack")
	w.requirePending(gang...)
	others := w.create(newPods(2, "other", "4")...)
	w.waitBound(others...)
	w.requirePending(gang...)
	w.addNodes("4", "c1")
	for _, other := range others {
		w.deletePod(other)
	}
	w.waitBound(gang...)
	require.Equal(t, map[string]int{"zone-a": 2, "zone-b": 2, "zone-c": 2}, w.byZone(labelled("web")))
}

// TestGangAndAffinityOfOthers: the proposal knows nothing of the anti-affinity of pods that are there; members that the
// filters refuse are tried elsewhere.
func TestGangAndAffinityOfOthers(t *testing.T) {
	w := newWorld(t)
	w.addNodes("3", "a1", "a2", "a3") // the fullest
	w.addNodes("8", "b1")
	s := w.startScheduler()
	var guards []*v1.Pod
	for _, node := range []string{"a1", "a2", "a3"} {
		guards = append(guards, w.create(newPod("guard-"+node, "1", onNode(node), func(pod *v1.Pod) {
			pod.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{
					TopologyKey:   v1.LabelHostname,
					LabelSelector: &metav1.LabelSelector{MatchLabels: labelled("train")},
				}},
			}}
		}))...)
	}
	w.waitBound(guards...)
	w.createGroup("train", 4, 0)
	gang := w.create(newPods(4, "train", "1", inGroup("train"), withLabel("app", "train"))...)
	w.waitBound(gang...)
	require.Equal(t, map[string]int{"zone-b": 4}, w.byZone(labelled("train")))

	// Where nothing is left the gang is refused with that reason, and holds nothing.
	w.createGroup("more", 6, 0)
	more := w.create(newPods(6, "more", "1", inGroup("more"), withLabel("app", "train"))...)
	w.waitEvent("PodGroup", "more", "anti-affinity")
	w.requirePending(more...)
	w.eventually("the gang holds nothing", func() (bool, string) { return len(s.assumed()) == 0, fmt.Sprint(s.assumed()) })
}

// TestRoomIsKeptForMembers: the node that is proposed to a member is not taken by others while the member is
// held up on its way.
func TestRoomIsKeptForMembers(t *testing.T) {
	w := newWorld(t)
	w.addNodes("2", "a1", "b1")
	stuck := &stuck{}
	stuck.on.Store(true)
	s := w.startScheduler(withTestPlugin(stuckName, stuck.factory()))
	w.createGroup("train", 4, 0)
	gang := w.create(newPods(3, "train", "1", inGroup("train"))...)
	late := w.create(newPod("late", "1", inGroup("train"), withLabel(stuckName, "yes")))[0]
	w.waitAssumed(s, gang...)
	other := w.create(newPod("other", "1"))[0]
	w.waitUnschedulable("Insufficient cpu", other)

	stuck.on.Store(false)
	w.waitBound(append(gang, late)...)
	w.requirePending(other)
	w.addNodes("1", "c1")
	w.waitBound(other)
}

// TestRoomIsGivenBackWithTheRound: a gang that cannot go on gives its room back, and others are woken for it.
func TestRoomIsGivenBackWithTheRound(t *testing.T) {
	w := newWorld(t)
	w.addNodes("2", "a1", "b1")
	stuck := &stuck{}
	stuck.on.Store(true)
	s := w.startScheduler(withTestPlugin(stuckName, stuck.factory()))
	w.createGroup("train", 4, 0)
	gang := w.create(newPods(3, "train", "1", inGroup("train"))...)
	late := w.create(newPod("late", "1", inGroup("train"), withLabel(stuckName, "yes")))[0]
	w.waitAssumed(s, gang...)
	others := w.create(newPods(4, "other", "1")...)
	w.waitUnschedulable("", others...)
	w.deletePod(late) // the quorum is gone
	w.waitBound(others...)
	w.requirePending(gang...)
}

// TestNoHeadOfLineBlocking is scheduler-plugins 874: a gang that does not fit keeps neither smaller gangs nor pods waiting
// behind it, whatever its priority.
func TestNoHeadOfLineBlocking(t *testing.T) {
	w := newWorld(t)
	w.addNodes("4", "a1")
	w.startScheduler()
	high := w.createPriorityClass(1000)
	w.createGroup("large", 6, 0)
	large := w.create(newPods(6, "large", "1", inGroup("large"), ofPriority(high))...)
	w.waitEvent("PodGroup", "large", "needs 6, at most 4 fit")
	w.createGroup("small", 2, 0)
	small := w.create(newPods(2, "small", "1", inGroup("small"))...)
	w.waitBound(append(small, w.create(newPods(2, "plain", "1")...)...)...)
	w.requirePending(large...)
}

// TestGangsOfDifferentPriorities is the case of scheduler-plugins PR 983: two gangs of different priorities that both
// lack room do not keep each other from trying, and the one that fits goes on, within a second of the room.
func TestGangsOfDifferentPriorities(t *testing.T) {
	w := newWorld(t)
	w.addNodes("2", "a1")
	w.startScheduler(withPermitGateArgs(`{"gangPreemption": false}`)) // or the one would evict the other
	classes := map[string]string{"high": w.createPriorityClass(1000), "low": w.createPriorityClass(10)}
	gangs := map[string][]*v1.Pod{}
	for _, name := range []string{"high", "low"} {
		w.createGroup(name, 4, 0)
		gangs[name] = w.create(newPods(4, name, "1", inGroup(name), ofPriority(classes[name]))...)
		w.waitEvent("PodGroup", name, "needs 4, at most 2 fit")
	}
	w.addNodes("2", "b1")
	w.eventually("one of the gangs is bound", func() (bool, string) {
		return w.bound(gangs["high"]...) == 4 || w.bound(gangs["low"]...) == 4, fmt.Sprint(w.bound(gangs["high"]...), w.bound(gangs["low"]...))
	})
	first, second := "high", "low"
	if w.bound(gangs["low"]...) == 4 {
		first, second = second, first
	}
	require.Zero(t, w.bound(gangs[second]...))
	for _, pod := range gangs[first] {
		w.deletePod(pod)
	}
	w.waitBound(gangs[second]...)
}

// withPermitGateArgs replaces the plugin's args.
func withPermitGateArgs(args string) schedulerOption {
	return edited(func(c *configv1.KubeSchedulerConfiguration) {
		for i := range c.Profiles {
			for k := range c.Profiles[i].PluginConfig {
				if c.Profiles[i].PluginConfig[k].Name == permitgate.Name {
					c.Profiles[i].PluginConfig[k].Args = runtime.RawExtension{Raw: []byte(args)}
				}
			}
		}
	})
}

// bound counts the pods that are bound.
func (w *world) bound(pods ...*v1.Pod) (n int) {
	w.t.Helper()
	for _, pod := range pods {
		if w.pod(pod).Spec.NodeName != "" {
			n++
		}
	}
	return n
}

// stuckName is the name of stuck in the registry, and the label of the pods that it stops.
const stuckName = "stuck"

// stuck is a plugin that fails the scheduling of some pods, behind all other PreFilter plugins.
type stuck struct{ on atomic.Bool }

var _ fwk.PreFilterPlugin = &stuck{}

func (s *stuck) factory() plugins.Factory {
	return func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) { return s, nil }
}

// Name implements fwk.Plugin.
func (*stuck) Name() string { return stuckName }

// PreFilter implements fwk.PreFilterPlugin.
func (s *stuck) PreFilter(_ context.Context, _ fwk.CycleState, pod *v1.Pod, _ []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	if pod.Labels[stuckName] != "" && s.on.Load() {
		return nil, fwk.NewStatus(fwk.Error, "stuck")
	}
	return nil, nil
}

// PreFilterExtensions implements fwk.PreFilterPlugin.
func (*stuck) PreFilterExtensions() fwk.PreFilterExtensions { return nil }
