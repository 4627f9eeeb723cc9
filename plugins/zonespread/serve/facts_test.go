package serve

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/internal/crd"
	"zonewise.dev/internal/pods"
	"zonewise.dev/plugins/zonespread/policy"
	"zonewise.dev/test/crdtest"
)

// TestFactsAreWrittenAtOnce: what decisions rest on is written when it happens, and the rest of the status every 10 s,
// by the leader alone.
func TestFactsAreWrittenAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPolicy("web")
		w := newWorld(t, crdtest.New(p), newNodes("a1", "b1", "c1")...)
		waiting := newPod("waiting", "")
		w.attempt(waiting, true, fullC)
		w.pass(time.Minute)
		require.Zero(t, w.source.Writes(), "a standby")

		w.lead()
		w.eventually("the report is there", func() bool { return len(w.stored(p).Status.Zones) == 3 })
		require.Len(t, w.zone(p, "c").Full, 1, "with what was known before")
		w.pass(time.Minute)
		written := w.source.Writes()
		w.pass(time.Minute)
		require.Equal(t, written, w.source.Writes(), "nothing is new")

		// Many pods come: one report.
		for i := range 20 {
			pod := newPod(fmt.Sprint(i), "b1")
			w.exists(pod)
			w.podSeen(pod, false)
		}
		w.pass(reportInterval + time.Second)
		require.EqualValues(t, 20, w.stored(p).Status.Pods)
		require.LessOrEqual(t, w.source.Writes()-written, 2)

		for _, test := range []struct {
			name string
			do   func()
			is   func(v1alpha1.ZoneStatus) bool
		}{
			{
				"a zone has room", func() { w.Bound(newPod("other", ""), &w.Inputs(waiting, w.For(waiting))[0], "c1") },
				func(z v1alpha1.ZoneStatus) bool { return len(z.Full) == 0 },
			},
			{
				"a zone refuses", func() { w.attempt(waiting, true, fullC) },
				func(z v1alpha1.ZoneStatus) bool { return len(z.Full) == 1 },
			},
			{
				"a zone is closed", func() { w.nodeChanges("c1", func(n *v1.Node) { n.Spec.Unschedulable = true }) },
				func(z v1alpha1.ZoneStatus) bool { return z.Since != nil },
			},
			{
				"time passes", func() { w.pass(3 * time.Minute) },
				func(z v1alpha1.ZoneStatus) bool { return z.State == v1alpha1.ZoneClosed },
			},
			{
				"it is open", func() { w.nodeChanges("c1", func(n *v1.Node) { n.Spec.Unschedulable = false }) },
				func(z v1alpha1.ZoneStatus) bool {
					return z.RecoveringSince != nil && z.State == v1alpha1.ZoneRecovering
				},
			},
			{
				"the window is over", func() { w.pass(10 * time.Minute) },
				func(z v1alpha1.ZoneStatus) bool { return z.RecoveringSince == nil && z.State == v1alpha1.ZoneAvailable },
			},
		} {
			start := w.clock.Now()
			test.do()
			w.eventually(test.name, func() bool { return test.is(w.zone(p, "c")) })
			require.Less(t, w.clock.Since(start), 11*time.Minute)
		}
	})
}

// matchingReplicas makes R the number of the pods that a policy selects.
func matchingReplicas(s *v1alpha1.ZoneSpreadPolicySpec) {
	s.Replicas = ptr.To(intstr.FromString(v1alpha1.ReplicasMatching))
}

// TestReplicasStayKnown: a change of the spec that leaves the selected pods as they are does not make R unknown for a
// moment.
func TestReplicasStayKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, crdtest.New(newPolicy("web", matchingReplicas)), newNodes("a1")...)
		w.podSeen(newPod("1", "a1"), false)
		w.onListed(func() { t.Error("the pods are collected again") })
		w.source.Put(newPolicy("web", matchingReplicas, func(s *v1alpha1.ZoneSpreadPolicySpec) { s.MaxSkew = 2 }))
		require.EqualValues(t, 2, w.Inputs(newPod("2", ""), w.For(newPod("2", "")))[0].Replicas)
	})
}

// slowSource does not answer writes. It says in whose namespaces they are.
type slowSource struct {
	crd.Source
	asked chan string
}

func (s *slowSource) PatchStatus(ctx context.Context, was, _ client.Object) error {
	s.asked <- was.GetNamespace()
	<-ctx.Done()
	return ctx.Err()
}

// TestChangedSpecsWaitTheirTurn: a tenant who changes the specs of many policies does not keep the statuses of others
// waiting.
func TestChangedSpecsWaitTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const flood = 50
		other := newPolicy("other")
		other.Namespace = "other"
		source := crdtest.New(other)
		changed := make([]*v1alpha1.ZoneSpreadPolicy, flood)
		for i := range changed {
			source.Put(newPolicy(fmt.Sprint(i)))
			changed[i] = newPolicy(fmt.Sprint(i), func(s *v1alpha1.ZoneSpreadPolicySpec) { s.MaxSkew = 2 })
		}
		w := newWorld(t, source, newNodes("a1", "b1")...)
		slow := &slowSource{source, make(chan string, flood+1)}
		w.Policies.mu.Lock()
		w.leading = true // the writer does not run yet
		w.writer = crd.NewWriter(slow, "ZoneSpreadPolicy", w.desiredStatus, nil, crd.WithClock(w.clock))
		w.Policies.mu.Unlock()
		w.writer.Later(other.Namespace, other.UID, 0)
		for _, p := range changed {
			source.Put(p)
		}
		idle := func() bool { return w.started() && w.agenda.Idle() }
		require.Eventually(t, idle, patience, time.Millisecond)
		w.clock.Step(gatherInterval)
		require.Eventually(t, idle, patience, time.Millisecond)
		go w.writer.Run(t.Context())
		const atOnce = 4 // writes of one writer
		require.Eventually(t, func() bool { return len(slow.asked) == atOnce }, patience, time.Millisecond)
		var first []string
		for range atOnce {
			first = append(first, <-slow.asked)
		}
		require.Contains(t, first, "other")
	})
}

// TestStatusOfAnother: a status that says something else, by someone else or by an older write that the watch shows
// late, is corrected.
func TestStatusOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPolicy("web")
		source := crdtest.New(p)
		w := newWorld(t, source, newNodes("a1", "b1")...)
		w.lead()
		w.eventually("the status has the zones", func() bool { return len(w.stored(p).Status.Zones) == 2 })
		other := w.stored(p).DeepCopy()
		other.Status.Zones = nil
		source.Put(other)
		w.eventually("the status is corrected", func() bool { return len(w.stored(p).Status.Zones) == 2 })
	})
}

// TestStandbyHasNothingToWrite: a replica that does not lead does not remember each rejected policy for a status that
// it will not write.
func TestStandbyHasNothingToWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPolicy("web", selectsNothing)
		w := newWorld(t, crdtest.New(p), newNodes("a1", "b1")...)
		require.True(t, w.writer.Idle())
		w.lead()
		w.eventually("the leader says that it is rejected", func() bool {
			return meta.IsStatusConditionFalse(w.stored(p).Status.Conditions, v1alpha1.ConditionAccepted)
		})
	})
}

// TestStandbyFollows: a replica that takes over decides by what the leader wrote, at the same moments.
func TestStandbyFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPolicy("web")
		source := crdtest.New(p)
		leader := newWorld(t, source, newNodes("a1", "b1", "c1")...)
		leader.lead()
		standby := newWorld(t, source, newNodes("a1", "b1", "c1")...)
		waiting := newPod("waiting", "")
		standby.exists(waiting)
		leader.attempt(waiting, true, fullC)
		leader.eventually("the refusal is written", func() bool { return len(leader.zone(p, "c").Full) == 1 })
		for _, w := range []*world{leader, standby} {
			w.pass(4 * time.Minute)
		}
		standby.lead()
		for _, w := range []*world{leader, standby} {
			require.Empty(t, w.availability(waiting))
			w.clock.SetTime(noon.Add(5*time.Minute + 2*time.Second))
			require.Empty(t, w.availability(waiting))
			w.attempt(waiting, true, fullC)
			require.Equal(t, policy.ZoneAvailability{"c": policy.Full}, w.availability(waiting))
		}
	})
}

// TestClosedBelongsToTheCluster: a zone is closed when no node is Ready and not cordoned, whatever pods select or
// tolerate.
func TestClosedBelongsToTheCluster(t *testing.T) {
	cordon := func(n *v1.Node) { n.Spec.Unschedulable = true }
	taint := func(n *v1.Node) { n.Spec.Taints = []v1.Taint{{Key: "gpu", Effect: v1.TaintEffectNoSchedule}} }
	unready := func(n *v1.Node) { n.Status.Conditions = nil }
	tolerates := func(p *v1.Pod) { p.Spec.Tolerations = []v1.Toleration{{Operator: v1.TolerationOpExists}} }
	selects := func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "ssd"} }
	for _, test := range []struct {
		name   string
		node   func(*v1.Node)
		pod    func(*v1.Pod) // the newest pod
		closed bool
	}{
		{"as it is", func(*v1.Node) {}, func(*v1.Pod) {}, false},
		{"cordoned", cordon, func(*v1.Pod) {}, true},
		{"cordoned, and the newest pod tolerates it", cordon, tolerates, true},
		{"not ready", unready, tolerates, true},
		{"tainted", taint, func(*v1.Pod) {}, false},
		{"not selected by the newest pod", func(*v1.Node) {}, selects, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, crdtest.New(newPolicy("web")),
					newNode("a1", func(n *v1.Node) { n.Labels["disk"] = "ssd" }), newNode("c1"))
				w.podSeen(newPod("1", ""), false)
				w.podSeen(newPod("2", "", test.pod,
					func(p *v1.Pod) { p.CreationTimestamp = metav1.NewTime(noon.Add(time.Minute)) }), false)
				w.nodeChanges("c1", test.node)
				w.pass(4 * time.Minute)
				require.Equal(t, map[bool]policy.ZoneAvailability{true: {"c": policy.Closed}}[test.closed],
					w.availability(newPod("3", "")))
			})
		})
	}
}

// TestSinceWhenNodesAreClosed: a node tells by the condition Ready and by the taint of a cordon.
func TestSinceWhenNodesAreClosed(t *testing.T) {
	early, late := metav1.NewTime(noon.Add(-time.Hour)), metav1.NewTime(noon.Add(-time.Minute))
	notReady := func(at metav1.Time) func(*v1.Node) {
		return func(n *v1.Node) {
			n.Status.Conditions = []v1.NodeCondition{{
				Type: v1.NodeReady, Status: v1.ConditionFalse,
				LastTransitionTime: at,
			}}
		}
	}
	cordon := func(at *metav1.Time) func(*v1.Node) {
		return func(n *v1.Node) {
			n.Spec.Unschedulable = true
			n.Spec.Taints = append(n.Spec.Taints,
				v1.Taint{Key: v1.TaintNodeUnschedulable, Effect: v1.TaintEffectNoSchedule, TimeAdded: at})
		}
	}
	zones := func(nodes ...*v1.Node) policy.ZoneNodes {
		all := policy.NodesByZone(nodes, v1.LabelTopologyZone)
		require.Len(t, all, 1)
		return all["a"]
	}
	since := func(at metav1.Time, nodes int) policy.ZoneNodes {
		return policy.ZoneNodes{Nodes: nodes, ClosedSince: at.Time}
	}
	require.Equal(t, since(early, 1), zones(newNode("a1", notReady(early))))
	require.Equal(t, since(late, 1), zones(newNode("a1", cordon(&late))))
	require.Equal(t, since(early, 1), zones(newNode("a1", notReady(early), cordon(&late))), "one reason is enough")
	require.Equal(t, since(late, 2), zones(newNode("a1", notReady(early)), newNode("a2", notReady(late))),
		"the last of them")
	require.Equal(t, since(metav1.Time{}, 2), zones(newNode("a1", notReady(early)), newNode("a2", cordon(nil))),
		"one does not say")
	require.Equal(t, policy.ZoneNodes{Nodes: 2, Open: 1}, zones(newNode("a1", notReady(early)), newNode("a2")))
	require.Empty(t, policy.NodesByZone([]*v1.Node{newNode("a1", func(n *v1.Node) { n.Labels = nil })}, v1.LabelTopologyZone))
}

func mustCompile(t testing.TB, obj *v1alpha1.ZoneSpreadPolicy) *policy.Policy {
	t.Helper()
	p, errs := policy.Compile(obj)
	require.Empty(t, errs)
	return p
}

// TestMatchingEqualsRecount: the number of pods that is kept as R is what counting them again gives, through random
// events, changes of the policy, and times without the CustomResourceDefinition.
func TestMatchingEqualsRecount(t *testing.T) {
	w := newWorldOutside(t, crdtest.New(), newNodes("a1", "b1")...)
	store := w.factory.Core().V1().Pods().Informer().GetStore()
	checks := 0
	rapid.Check(t, func(rt *rapid.T) {
		checks++
		namespace := fmt.Sprintf("shop-%d", checks)
		inNamespace := func(edit func(*v1alpha1.ZoneSpreadPolicySpec)) *v1alpha1.ZoneSpreadPolicy {
			p := newPolicy("web", edit, matchingReplicas)
			p.Namespace, p.UID = namespace, types.UID(namespace)
			return p
		}
		obj := inNamespace(func(*v1alpha1.ZoneSpreadPolicySpec) {})
		w.source.Put(obj)
		served := true
		existing := map[string]*v1.Pod{}
		for range rapid.IntRange(1, 40).Draw(rt, "events") {
			name := rapid.SampledFrom([]string{"1", "2", "3", "4", "5"}).Draw(rt, "pod")
			was := existing[name]
			switch rapid.SampledFrom([]string{"pod", "pod", "pod", "pod", "gone", "policy", "served"}).Draw(rt,
				"event") {
			case "pod":
				is := newPod(fmt.Sprint(checks, "-", name),
					rapid.SampledFrom([]string{"", "a1", "b1"}).Draw(rt, "node"))
				is.Namespace = namespace
				is.Labels["app"] = rapid.SampledFrom([]string{"web", "other"}).Draw(rt, "app")
				is.Labels["pod-template-hash"] = rapid.SampledFrom([]string{"1", "2"}).Draw(rt, "hash")
				is.Labels[v1alpha1.PodGroupLabel] = rapid.SampledFrom([]string{"", "one", "two"}).Draw(rt, "gang")
				if rapid.Bool().Draw(rt, "terminates") {
					is.DeletionTimestamp = &metav1.Time{Time: noon}
				}
				if was != nil && rapid.Bool().Draw(rt, "another pod of the name") {
					is.UID += "+"
				}
				require.NoError(rt, store.Add(is))
				existing[name] = is
				switch {
				case was == nil:
					w.podSeen(is, false)
				case was.UID != is.UID:
					w.podGone(was)
					w.podSeen(is, false)
				default:
					w.podChanged(was, is)
				}
			case "gone":
				if was != nil {
					require.NoError(rt, store.Delete(was))
					delete(existing, name)
					w.podGone(was)
				}
			case "policy":
				if !served {
					continue // then there are none
				}
				obj = inNamespace(func(s *v1alpha1.ZoneSpreadPolicySpec) {
					s.PodSelector.MatchLabels["app"] = rapid.SampledFrom([]string{"web", "other"}).Draw(rt, "selects")
					s.Unit = rapid.SampledFrom([]v1alpha1.Unit{v1alpha1.UnitPod, v1alpha1.UnitPodGroup}).Draw(rt,
						"unit")
				})
				w.source.Put(obj)
			case "served":
				served = rapid.Bool().Draw(rt, "served")
				w.source.Serve(obj, served)
			}
		}
		w.source.Serve(obj, true)
		w.settle()
		stored := w.stored(obj)
		p := mustCompile(t, stored)
		want := map[types.UID]string{}
		gangs := map[string]bool{}
		matching := int64(0)
		for _, pod := range existing {
			if !pods.Live(pod) || !p.Selects(pod.Labels) {
				continue
			}
			gang := pod.Labels[p.GroupBy()]
			want[pod.UID] = gang
			if gang == "" || !gangs[gang] {
				matching++
			}
			gangs[gang] = true
		}
		w.Policies.mu.Lock()
		defer w.Policies.mu.Unlock()
		e := w.entries[stored.UID]
		require.True(rt, e.matching.filled)
		require.Equal(rt, want, e.matching.pods)
		require.Equal(rt, matching, e.matching.count())
		for _, pod := range existing {
			require.NoError(rt, store.Delete(pod))
		}
	})
}

// hookedLister calls a function after it has listed pods.
type hookedLister struct {
	corelisters.PodLister
	corelisters.PodNamespaceLister

	listed func()
}

func (l *hookedLister) Pods(namespace string) corelisters.PodNamespaceLister {
	return &hookedLister{l.PodLister, l.PodLister.Pods(namespace), l.listed}
}

func (l *hookedLister) List(selector labels.Selector) ([]*v1.Pod, error) {
	var lister interface {
		List(selector labels.Selector) ([]*v1.Pod, error)
	} = l.PodLister
	if l.PodNamespaceLister != nil {
		lister = l.PodNamespaceLister
	}
	pods, err := lister.List(selector)
	l.listed()
	return pods, err
}

// onListed has a function called each time that pods have been listed.
func (w *world) onListed(do func()) {
	w.Policies.mu.Lock()
	defer w.Policies.mu.Unlock()
	w.cluster.pods = &hookedLister{w.cluster.pods, nil, do}
}

// TestPodsAreCollectedTwiceAtOnce: the CustomResourceDefinition goes and comes back while pods are collected, and a pod
// comes meanwhile. It counts, too.
func TestPodsAreCollectedTwiceAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPolicy("web", matchingReplicas)
		w := newWorld(t, crdtest.New(p), newNodes("a1")...)
		store := w.factory.Core().V1().Pods().Informer().GetStore()
		come := func(name string) {
			pod := newPod(name, "a1")
			require.NoError(t, store.Add(pod))
			w.podSeen(pod, false)
		}
		come("before")
		gap := sync.OnceFunc(func() {
			w.source.Serve(p, false)
			come("meanwhile")
			w.source.Serve(p, true)
		})
		w.onListed(gap)
		w.source.Serve(p, false)
		w.source.Serve(p, true)
		w.settle()
		w.Policies.mu.Lock()
		defer w.Policies.mu.Unlock()
		require.Equal(t, int64(2), w.entries[p.UID].matching.count())
	})
}

// TestAPolicyIsSeenBeforeItsKindIsServed: what happened to pods while the CustomResourceDefinition was away counts,
// whichever news comes first.
func TestAPolicyIsSeenBeforeItsKindIsServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPolicy("web", matchingReplicas)
		w := newWorld(t, crdtest.New(p), newNodes("a1")...)
		store := w.factory.Core().V1().Pods().Informer().GetStore()
		stays, goes := newPod("stays", "a1"), newPod("goes", "a1")
		for _, pod := range []*v1.Pod{stays, goes} {
			require.NoError(t, store.Add(pod))
			w.podSeen(pod, false)
		}
		w.servedChanged(false)
		require.NoError(t, store.Delete(goes))
		w.podGone(goes)
		w.policySeen(w.stored(p))
		w.servedChanged(true)
		w.settle()
		w.Policies.mu.Lock()
		defer w.Policies.mu.Unlock()
		require.Len(t, w.entries[p.UID].matching.pods, 1)
		require.Contains(t, w.entries[p.UID].matching.pods, stays.UID)
	})
}

// TestBadPolicy: a policy that cannot be applied says so, and affects no pod; mended, it goes on with what it knew.
func TestBadPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPolicy("web")
		w := newWorld(t, crdtest.New(p), newNodes("a1", "b1", "c1")...)
		w.lead()
		w.nodeChanges("c1", func(n *v1.Node) { n.Spec.Unschedulable = true })
		w.pass(3 * time.Minute)
		require.Equal(t, policy.ZoneAvailability{"c": policy.Closed}, w.availability(newPod("1", "")))
		w.source.Put(newPolicy("web", selectsNothing))
		require.False(t, w.Selects(newPod("1", "")))
		w.eventually("that is said", func() bool {
			return meta.IsStatusConditionFalse(w.stored(p).Status.Conditions, v1alpha1.ConditionAccepted)
		})
		w.source.Put(p)
		require.Equal(t, policy.ZoneAvailability{"c": policy.Closed}, w.availability(newPod("1", "")))
		w.eventually("it is accepted", func() bool {
			return meta.IsStatusConditionTrue(w.stored(p).Status.Conditions, v1alpha1.ConditionAccepted)
		})
	})
}

// TestStatusIsCountedWithoutTheLock: scheduling cycles do not wait while the pods are counted and the status is
// computed.
func TestStatusIsCountedWithoutTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPolicy("web")
		w := newWorld(t, crdtest.New(p), newNodes("a1", "b1")...)
		listed := 0
		w.onListed(func() {
			listed++
			if !w.Policies.mu.TryLock() {
				t.Error("the lock is held")
				return
			}
			w.Policies.mu.Unlock()
		})
		w.exists(newPod("1", "a1"))
		w.recount(w.clock.Now(), p.UID)
		_, desired, ok := w.desiredStatus(p.UID)
		require.True(t, ok)
		require.EqualValues(t, 1, desired.Status.Pods)
		require.Equal(t, 1, listed)
		_, _, ok = w.desiredStatus(p.UID)
		require.True(t, ok)
		require.Equal(t, 1, listed, "what is urgent to write does not count again")
	})
}

// TestNewPoliciesAreCountedTogether: however many policies are new or change at a time, the pods are listed once for
// all of them.
func TestNewPoliciesAreCountedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := crdtest.New()
		w := newWorld(t, source, newNodes("a1", "b1")...)
		w.lead()
		w.exists(newPod("1", "a1"))
		var listed atomic.Int64
		w.onListed(func() { listed.Add(1) })
		for skew := range int32(3) {
			policies := make([]*v1alpha1.ZoneSpreadPolicy, 50)
			for i := range policies {
				policies[i] = newPolicy(fmt.Sprint(i), func(s *v1alpha1.ZoneSpreadPolicySpec) { s.MaxSkew = skew + 1 })
				source.Put(policies[i])
			}
			listed.Store(0)
			for _, p := range policies {
				w.eventually("its status is there", func() bool {
					status := w.stored(p).Status
					return status.Pods == 1 && status.ObservedGeneration == int64(skew+1)
				})
			}
			require.EqualValues(t, 1, listed.Load())
		}
	})
}
