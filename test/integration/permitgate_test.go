package integration

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
)

// TestGangBindsWhole: nothing happens until the last member exists, and then all are bound.
func TestGangBindsWhole(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"permitgate.yaml", "zonewise.yaml"} {
		t.Run(file, func(t *testing.T) {
			w := newWorld(t)
			w.addNodes("4", "a1", "b1", "c1")
			w.startScheduler(configured(file))
			w.createGroup("train", 6, 0)
			gang := w.create(newPods(5, "train", "1", inGroup("train"))...)
			// Pods of no gang are not held up by it, and show that the scheduler has come this far.
			w.waitBound(w.create(newPod("other", "1"))...)
			w.requirePending(gang...)

			gang = append(gang, w.create(newPod("train-5", "1", inGroup("train")))...)
			w.waitBound(gang...)
		})
	}
}

// TestGangIsSpread: the members of a gang have spread constraints like other pods.
func TestGangIsSpread(t *testing.T) {
	w := newWorld(t)
	w.addNodes("16", "a1")
	w.addNodes("4", "b1", "c1")
	w.startScheduler()
	w.createGroup("train", 6, 0)
	w.waitBound(w.create(newPods(6, "train", "1", inGroup("train"), ofApp("train", 1, hard))...)...)
	require.Equal(t, map[string]int{"zone-a": 2, "zone-b": 2, "zone-c": 2}, w.byZone(labelled("train")))
}

// TestGangThatDoesNotFit: a gang that needs more than there is stays whole in Pending and holds nothing;
// what it could have had a part of is given to others. It goes on when there is room.
func TestGangThatDoesNotFit(t *testing.T) {
	w := newWorld(t)
	w.addNodes("4", "a1")
	s := w.startScheduler()
	w.createGroup("train", 6, 0)
	gang := w.create(newPods(6, "train", "1", inGroup("train"))...)
	w.waitEvent("PodGroup", "train", "short of cpu")
	w.requirePending(gang...)
	w.eventually("the gang holds nothing", func() (bool, string) {
		return len(s.ledgerAccount()["a1"].Pods) == 0, fmt.Sprint(s.assumed())
	})

	w.eventually("no member that was sent back is still nominated to a node, which keeps others from it", func() (bool, string) {
		for _, pod := range gang {
			if got := w.pod(pod); got.Status.NominatedNodeName != "" && !s.ledger().IsAssumedPod(pod.UID) {
				return false, got.Name + " is nominated to " + got.Status.NominatedNodeName
			}
		}
		return true, ""
	})

	whole := w.create(newPod("whole-node", "4"))[0]
	w.waitBound(whole)
	w.requirePending(gang...)
	w.assertInvariants()

	w.addNodes("4", "b1")
	w.deletePod(whole)
	w.waitBound(gang...)
}

// TestGangsThatCompete: either gang fits, both do not. One is bound, whole, and the other when the first
// is gone; neither keeps a part of what both want.
func TestGangsThatCompete(t *testing.T) {
	w := newWorld(t)
	w.addNodes("2", "a1", "b1")
	w.startScheduler()
	w.createGroup("left", 3, 0)
	w.createGroup("right", 3, 0)
	gangs := map[string][]*v1.Pod{}
	for i := range 3 { // in turns, so that the queue mixes them
		for _, name := range []string{"left", "right"} {
			gangs[name] = append(gangs[name], w.create(newPod(fmt.Sprintf("%s-%d", name, i), "1", inGroup(name)))...)
		}
	}
	bound := func(name string) int {
		n := 0
		for _, pod := range w.pods(map[string]string{schedulingv1alpha1.PodGroupLabel: name}) {
			if pod.Spec.NodeName != "" {
				n++
			}
		}
		return n
	}
	w.eventually("one gang is bound", func() (bool, string) {
		l, r := bound("left"), bound("right")
		return l == 3 || r == 3, fmt.Sprintf("left %d, right %d", l, r)
	})
	winner, loser := "left", "right"
	if bound("right") == 3 {
		winner, loser = loser, winner
	}
	w.assertInvariants()
	require.Zero(t, bound(loser))
	for _, pod := range gangs[winner] {
		w.deletePod(pod)
	}
	w.waitBound(gangs[loser]...)
}

// TestMembersBeyondMinMember: they are ordinary pods once the quorum is in.
func TestMembersBeyondMinMember(t *testing.T) {
	w := newWorld(t)
	w.addNodes("4", "a1")
	w.startScheduler()
	w.createGroup("train", 2, 0)
	gang := w.create(newPods(6, "train", "1", inGroup("train"))...)
	var left []*v1.Pod
	w.eventually("four of six are bound", func() (bool, string) {
		left = nil
		for _, pod := range gang {
			if w.pod(pod).Spec.NodeName == "" {
				left = append(left, pod)
			}
		}
		return len(left) == 2, fmt.Sprintf("%d are not", len(left))
	})
	w.waitUnschedulable("Insufficient cpu", left...)
	w.addNodes("1", "b1", "c1")
	w.waitBound(left...)
}

// TestElasticGangGrowsAndShrinks: once whole a gang takes and loses members like any workload, as long as minMember of them
// are left; below that newcomers wait until they are enough again.
func TestElasticGangGrowsAndShrinks(t *testing.T) {
	w := newWorld(t)
	w.addNodes("4", "a1")
	w.startScheduler()
	w.createGroup("train", 3, 0)
	gang := w.create(newPods(3, "train", "1", inGroup("train"))...)
	w.waitBound(gang...)

	// Up: one by one, as there is room.
	gang = append(gang, w.create(newPod("fourth", "1", inGroup("train")))...)
	w.waitBound(gang...)
	more := w.create(newPods(2, "more", "1", inGroup("train"))...)
	w.waitUnschedulable("Insufficient cpu", more...)
	w.addNodes("1", "b1")
	w.eventually("one of them is bound, without the other", func() (bool, string) {
		n := 0
		for _, pod := range more {
			if w.pod(pod).Spec.NodeName != "" {
				n++
			}
		}
		return n == 1, fmt.Sprint(n)
	})
	w.addNodes("1", "c1")
	w.waitBound(more...)
	gang = append(gang, more...)

	// Down, and minMember are left: the rest runs on, and a newcomer asks nobody.
	for _, pod := range gang[3:] {
		w.deletePod(pod)
	}
	w.waitBound(w.create(newPod("newcomer", "1", inGroup("train")))...)
	w.waitBound(gang[:3]...)

	// Down, and one is left, which runs on. Two make a gang with it, and one does not.
	for _, pod := range append(w.pods(nil), *gang[1]) {
		if pod.Name != gang[0].Name {
			w.deletePod(&pod)
		}
	}
	second := w.create(newPod("second", "1", inGroup("train")))[0]
	w.waitEvent("Pod", second.Name, "needs 3 members, 2 exist")
	w.requirePending(second)
	w.waitBound(gang[0])
	w.waitBound(second, w.create(newPod("third", "1", inGroup("train")))[0])
}

// TestGangOverTwoProfiles: the members of one gang may be of several profiles.
func TestGangOverTwoProfiles(t *testing.T) {
	w := newWorld(t)
	w.addNodes("4", "a1", "b1", "c1")
	w.startScheduler(withSecondProfile("batch"))
	w.createGroup("train", 4, 0)
	gang := w.create(newPods(2, "mine", "1", inGroup("train"))...)
	w.waitBound(w.create(newPod("other", "1"))...)
	w.requirePending(gang...)
	gang = append(gang, w.create(newPods(2, "theirs", "1", inGroup("train"), byScheduler("batch"))...)...)
	w.waitBound(gang...)
}

// TestWaitingMemberIsDeleted: a member that is gone takes the others' hope with it: they are sent back and
// what they had is free.
func TestWaitingMemberIsDeleted(t *testing.T) {
	w := newWorld(t)
	w.addNodes("3", "a1")
	// The test keeps one member in Permit, so that the quorum is there and the gang waits.
	h := &hook{permit: func(pod *v1.Pod) *fwk.Status {
		if pod.Labels["kept"] == "" {
			return nil
		}
		return fwk.NewStatus(fwk.Wait)
	}}
	s := w.startScheduler(withTestPlugin(hookName, h.factory()))
	w.createGroup("train", 3, 0)
	kept := w.create(newPod("kept", "1", inGroup("train"), withLabel("kept", "yes")))[0]
	rest := w.create(newPods(2, "train", "1", inGroup("train"))...)
	w.waitAssumed(s, append(rest, kept)...)
	w.requirePending(rest...)

	w.deletePod(kept)
	w.eventually("the gang holds nothing", func() (bool, string) {
		return s.ledger().Stats().Pods == 0, fmt.Sprint(s.assumed())
	})
	w.requirePending(rest...)
	other := w.create(newPod("other", "3"))[0]
	w.waitBound(other)
	w.deletePod(other)

	// A new third member, and the gang goes on.
	w.waitBound(append(rest, w.create(newPod("third", "1", inGroup("train")))...)...)
}

// TestGangTimesOut: members that wait longer than the PodGroup says give back what they hold.
func TestGangTimesOut(t *testing.T) {
	w := newWorld(t)
	w.addNodes("3", "a1")
	h := &hook{permit: func(pod *v1.Pod) *fwk.Status {
		if pod.Labels["kept"] == "" {
			return nil
		}
		return fwk.NewStatus(fwk.Wait)
	}}
	s := w.startScheduler(withTestPlugin(hookName, h.factory()))
	w.createGroup("train", 3, 2*time.Second)
	kept := w.create(newPod("kept", "1", inGroup("train"), withLabel("kept", "yes")))[0]
	rest := w.create(newPods(2, "train", "1", inGroup("train"))...)
	w.waitAssumed(s, append(rest, kept)...)
	w.eventually("the gang holds nothing", func() (bool, string) {
		return s.ledger().Stats().Pods == 0, fmt.Sprint(s.assumed())
	})
	w.waitEvent("PodGroup", "train", "GangRolledBack")
	w.requirePending(append(rest, kept)...)
}

// TestMembersDoNotPreemptForAGangThatDoesNotFit: a gang of high priority that would not fit even on an empty
// cluster evicts nobody.
func TestMembersDoNotPreemptForAGangThatDoesNotFit(t *testing.T) {
	w := newWorld(t)
	w.addNodes("2", "a1")
	w.startScheduler()
	high := w.createPriorityClass(1000)
	low := w.create(newPods(2, "low", "1")...)
	w.waitBound(low...)
	w.createGroup("train", 3, 0)
	gang := w.create(newPods(3, "train", "1", inGroup("train"), ofPriority(high))...)
	w.waitEvent("PodGroup", "train", "GangRolledBack")
	w.requirePending(gang...)
	for _, pod := range low {
		require.Nil(t, w.pod(pod).DeletionTimestamp, "a member preempted for itself")
	}
	// A pod that is in no gang may.
	w.waitBound(w.create(newPod("alone", "1", ofPriority(high)))...)
}

// TestGroupIsDeleted: the members of a gang that has lost its PodGroup wait for it to come back.
func TestGroupIsDeleted(t *testing.T) {
	w := newWorld(t)
	w.addNodes("4", "a1")
	w.startScheduler()
	w.createGroup("train", 3, 0)
	gang := w.create(newPods(2, "train", "1", inGroup("train"))...)
	w.waitEvent("Pod", gang[0].Name, "TooFewMembers")
	w.deleteGroup("train")
	gang = append(gang, w.create(newPod("train-2", "1", inGroup("train")))...)
	w.waitEvent("Pod", "train-2", "PodGroupNotFound")
	w.requirePending(gang...)
	w.createGroup("train", 3, 0)
	w.waitBound(gang...)
}
