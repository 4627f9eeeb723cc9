package serve

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"zonewise.dev/apis/v1alpha1"
)

// TestOwnersPerNodeAreCountedAnew: owners that go while slotsPerNode is not set do not count when it is set again.
func TestOwnersPerNodeAreCountedAnew(t *testing.T) {
	f := newFixture(t, 1)
	f.placing.Store(true)
	f.Ledger.AddNode(makeNode("n1", "4"))
	generation := int64(0)
	slots := func(perNode *int32) int {
		generation++
		f.seen(reservation("r", 1, func(r *v1alpha1.ZoneReservation) { r.Generation, r.Spec.SlotsPerNode = generation, perNode }))
		f.pass(t.Context())
		on := f.Holds.StatusOn("uid-r", "n1")
		return on.Slots()
	}
	require.Equal(t, 1, slots(ptr.To[int32](1)))
	f.add(t, replica("owner", "1", t0))
	require.Equal(t, 0, slots(ptr.To[int32](1)), "the owner is the one that the node may have")
	require.Equal(t, 1, slots(nil))
	f.Ledger.RemovePod("owner")
	f.PodGone("owner")
	require.Equal(t, 1, slots(ptr.To[int32](1)))
}

// listed is a pod informer that says when its pods have been listed.
type listed struct {
	cache.SharedIndexInformer
	then func()
}

func (l *listed) GetIndexer() cache.Indexer {
	return listedIndexer{l.SharedIndexInformer.GetIndexer(), l.then}
}

type listedIndexer struct {
	cache.Indexer
	then func()
}

func (i listedIndexer) List() []any {
	defer i.then()
	return i.Indexer.List()
}

// TestAPodThatGoesWhileMembersAreCounted is none afterwards.
func TestAPodThatGoesWhileMembersAreCounted(t *testing.T) {
	f := newFixture(t, 1)
	pod := replica("owner", "1", t0)
	var gone sync.WaitGroup
	then := func() {
		// The informer's goroutine drops the pod at once if it can, or else when it gets the lock.
		if f.mu.TryLock() {
			f.mu.Unlock()
			f.PodGone(pod.UID)
			return
		}
		gone.Go(func() { f.PodGone(pod.UID) })
	}
	factory := informers.NewSharedInformerFactory(fake.NewClientset(), 0) // of which nobody else has had an informer made
	f.Handle = &handle{factory: factory}
	informer := factory.InformerFor(&v1.Pod{}, func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer {
		return &listed{cache.NewSharedIndexInformer(&cache.ListWatch{}, &v1.Pod{}, 0, cache.Indexers{}), then}
	})
	f.seen(reservation("r", 1, nil))
	f.pass(t.Context())
	gone.Wait()
	require.NoError(t, informer.GetIndexer().Add(pod))
	f.PodSeen(pod)
	require.Len(t, f.members.pods, 1)
	f.countMembers()
	gone.Wait()
	require.Empty(t, f.members.pods)
}
