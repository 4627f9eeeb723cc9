package permitgate

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"

	"zonewise.dev/plugins/permitgate/plan"
)

// preempting has a gang wait for victims and for pods that end already, and returns its key.
func preempting(s *Shared, name string, victims, leaving []*v1.Pod) types.NamespacedName {
	member, _ := backingOff(s, name)
	key, _ := gangOf(member)
	found := &plan.Eviction{}
	for _, pod := range victims {
		found.Victims = append(found.Victims, plan.Removal{Pod: pod})
	}
	for _, pod := range leaving {
		found.Leaving = append(found.Leaving, plan.Removal{Pod: pod})
	}
	s.change(key, func(e *entry, now time.Time) {
		cluster := &view{nodes: nodesOf(10)}
		s.setPreemptingLocked(e, newPreemption(&task{minMember: 2}, cluster, found, now))
	})
	return key
}

// look returns what is known of a gang. The test must have nobody else that changes it.
func look(t *testing.T, s *Shared, key types.NamespacedName) (e *entry) {
	t.Helper()
	require.True(t, s.look(key, func(found *entry, _ time.Time) { e = found }))
	return e
}

// TestVictimsThatLeave: a pod that leaves is told to whom it concerns, and nothing is kept of it.
func TestVictimsThatLeave(t *testing.T) {
	p, _ := newPlugin(t, WithPodGroups(noGroups))
	s := p.shared
	going := lowPod("going", endsAt(time.Now()))
	one := preempting(s, "one", []*v1.Pod{lowPod("a"), lowPod("b")}, []*v1.Pod{going})
	two := preempting(s, "two", nil, []*v1.Pod{going})
	preempting(s, "three", []*v1.Pod{lowPod("c")}, nil)
	waits := func(key types.NamespacedName) int {
		if pr := look(t, s, key).preempting; pr != nil {
			return pr.waits()
		}
		return -1
	}
	require.Equal(t, []int{3, 1}, []int{waits(one), waits(two)})
	s.victimGone("nobody")
	s.victimGone("going")
	require.Equal(t, []int{2, 0}, []int{waits(one), waits(two)})
	require.Len(t, s.awaiting, 4)
	s.change(one, func(e *entry, _ time.Time) { s.placedLocked(e) })
	s.change(two, func(e *entry, _ time.Time) { s.setPreemptingLocked(e, nil) })
	require.Equal(t, []int{-1, -1}, []int{waits(one), waits(two)})
	require.Len(t, s.awaiting, 1, "that of the third gang")
}

// TestPreemptionsThatFail: those that were evicted are waited for all the same, those that stay are not, nor are they asked again while
// that is vain; and the reason is there as long as it holds.
func TestPreemptionsThatFail(t *testing.T) {
	p, _ := newPlugin(t, WithPodGroups(noGroups))
	s := p.shared
	key := preempting(s, "one", []*v1.Pod{lowPod("stays"), lowPod("goes"), lowPod("goes-later")}, nil)
	e := look(t, s, key)
	now := time.Now()
	s.change(key, func(e *entry, _ time.Time) {
		e.preempting.victims[1].asked, e.preempting.victims[2].asked = true, true
		s.failLocked(e, failedPreemption{"stays says no", []types.UID{"stays"}}, now)
	})
	require.Equal(t, 2, e.preempting.waits())
	require.Equal(t, map[types.UID]bool{"stays": true}, s.barredLocked(now))
	require.Equal(t, "stays says no", s.failureLocked(e, now))
	require.Empty(t, s.failureLocked(e, now.Add(barredFor)))
	require.Empty(t, s.barredLocked(now.Add(barredFor)))
	require.False(t, (&view{priority: 10, barred: s.barredLocked(now), member: func(types.UID) bool { return false }}).mayGo(lowPod("stays")))

	s.change(key, func(e *entry, _ time.Time) { // an eviction that was on the way when the room was given back
		e.preempting.victims[2].asked = false
		s.spareLocked(e, e.preempting)
	})
	require.Equal(t, 1, e.preempting.waits())
	s.victimGone("goes")
	require.Nil(t, e.preempting)
	s.victimGone("stays")
	require.Empty(t, s.failureLocked(e, now), "the pod is gone, and with it the reason")
	require.Empty(t, s.awaiting)

	key = preempting(s, "two", []*v1.Pod{lowPod("b"), lowPod("a"), lowPod("c")}, nil)
	e = look(t, s, key)
	require.Equal(t, failedPreemption{"pod ns/a on node a and 2 others did not leave in time", []types.UID{"a", "b", "c"}}, e.preempting.overdue())
	s.victimGone("b")
	s.victimGone("c")
	require.Equal(t, "pod ns/a did not leave node a in time", e.preempting.overdue().why)
	s.change(key, func(e *entry, now time.Time) { e.preempting.until = now })
	require.Nil(t, e.preempting)
	require.Equal(t, "pod ns/a did not leave node a in time", s.failureLocked(e, time.Now()))
	require.Contains(t, e.told.preemptionFailed, "pod ns/a did not leave node a in time; the gang gives back")
}

// TestEvictionsAreRehearsed: when the API server would not let one of the victims go, none is touched.
func TestEvictionsAreRehearsed(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "kept", errors.New("protected"))
	for name, tt := range map[string]struct {
		errs  map[string]error // by pod
		want  string
		final bool
		gone  int
	}{
		"all may go":     {nil, "", false, 3},
		"one is gone":    {map[string]error{"kept": apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "kept")}, "", false, 3},
		"an old webhook": {map[string]error{"kept": apierrors.NewBadRequest("admission webhook \"x\" does not support dry run")}, "", false, 3},
		"one stays":      {map[string]error{"kept": forbidden}, "pod ns/kept could not be evicted: pods \"kept\" is forbidden: protected", true, 0},
		"no answer":      {map[string]error{"kept": errors.New("connection refused")}, "pod ns/kept could not be evicted: connection refused", false, 0},
		"two stay, and one gives no answer": {
			map[string]error{"one": errors.New("connection refused"), "kept": forbidden, "two": forbidden},
			"pod ns/kept and 1 other could not be evicted: pods \"kept\" is forbidden: protected", true, 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, _ := newPlugin(t, WithPodGroups(noGroups))
			pods := []*v1.Pod{lowPod("one"), lowPod("kept"), lowPod("two")}
			client := fake.NewClientset()
			for _, pod := range pods {
				require.NoError(t, client.Tracker().Add(pod))
			}
			client.PrependReactor("delete", "pods", func(action kubetesting.Action) (bool, runtime.Object, error) {
				d := action.(kubetesting.DeleteActionImpl)
				if len(d.DeleteOptions.DryRun) > 0 {
					return true, nil, tt.errs[d.Name]
				}
				return false, nil, nil
			})
			key := preempting(p.shared, "train", pods, nil)
			_, err := p.shared.evictFor(t.Context(), client, key)
			if tt.want == "" {
				require.Nil(t, err)
			} else {
				require.EqualError(t, err, tt.want)
				require.Equal(t, tt.final, err.final)
				require.True(t, err.rehearsed)
			}
			require.Equal(t, tt.gone, look(t, p.shared, key).preempting.evicted())
			patched := 0
			for _, action := range client.Actions() {
				if action.GetVerb() == "patch" {
					patched++
				}
			}
			require.Equal(t, tt.gone, patched)
		})
	}
}
