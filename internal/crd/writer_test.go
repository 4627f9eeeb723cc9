package crd_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	schedv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/internal/crd"
	"zonewise.dev/internal/informer"
	"zonewise.dev/test/crdtest"
)

func group(name string) *schedv1alpha1.PodGroup {
	return &schedv1alpha1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "batch", Name: name, UID: types.UID(name)}}
}

// counter wants each PodGroup to have as many running members as it is told.
type counter struct {
	mu      sync.Mutex // guards everything up to the blank line
	groups  map[types.UID]*schedv1alpha1.PodGroup
	running map[types.UID]int32
	written []string

	turn func(uid types.UID) // called, without the lock, when an object's turn has come; may be nil
}

func (c *counter) want(uid types.UID) (was, is *schedv1alpha1.PodGroup, ok bool) {
	if c.turn != nil {
		c.turn(uid)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	was, ok = c.groups[uid]
	if !ok {
		return nil, nil, false
	}
	is = was.DeepCopy()
	is.Status.Running = c.running[uid]
	return was, is, true
}

func (c *counter) set(uid types.UID, running int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running[uid] = running
}

func start(t *testing.T, source *crdtest.Source) (*counter, *crd.Writer[*schedv1alpha1.PodGroup]) {
	t.Helper()
	c := &counter{groups: map[types.UID]*schedv1alpha1.PodGroup{}, running: map[types.UID]int32{}}
	_, err := crd.Watch(t.Context(), source, informer.Latest(
		func(g *schedv1alpha1.PodGroup) { c.mu.Lock(); defer c.mu.Unlock(); c.groups[g.UID] = g },
		func(g *schedv1alpha1.PodGroup) { c.mu.Lock(); defer c.mu.Unlock(); delete(c.groups, g.UID) },
	), nil)
	require.NoError(t, err)
	w := crd.NewWriter(source, "PodGroup", c.want, func(_, is *schedv1alpha1.PodGroup) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.written = append(c.written, is.Name)
	})
	return c, w
}

func status(source *crdtest.Source, name string) int32 {
	g, _ := crdtest.Get(source, group(name))
	return g.Status.Running
}

func TestWriterWritesWhatIsWanted(t *testing.T) {
	source := crdtest.New(group("a"), group("b"))
	c, w := start(t, source)
	c.set("a", 3)
	w.Now("shop", "a")
	w.Now("shop", "b")    // is as it should be
	w.Now("shop", "gone") // is unknown
	require.Zero(t, source.Writes(), "a standby replica writes nothing")
	go w.Run(t.Context())
	require.Eventually(t, func() bool { return status(source, "a") == 3 && w.Idle() }, time.Minute, time.Millisecond)
	require.Equal(t, 1, source.Writes())
	require.Equal(t, []string{"a"}, c.written)

	w.Now("shop", "a")
	require.Eventually(t, w.Idle, time.Minute, time.Millisecond)
	require.Equal(t, 1, source.Writes(), "nothing has changed")
}

func TestWriterTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := crdtest.New(group("a"), group("b"))
		c, w := start(t, source)
		go w.Run(t.Context())
		source.Refuse(errors.New("the API server is overloaded"))
		c.set("a", 3)
		w.Now("shop", "a")
		time.Sleep(time.Minute)
		require.Zero(t, source.Writes())
		source.Refuse(nil)
		require.Eventually(t, func() bool { return status(source, "a") == 3 }, time.Minute, time.Millisecond)

		// A conflict: another writer was faster, and the watch brings the newer object.
		c.mu.Lock()
		old := c.groups["b"]
		c.mu.Unlock()
		newer := group("b")
		newer.Labels = map[string]string{"new": ""}
		source.Put(newer)
		c.mu.Lock()
		current := c.groups["b"]
		c.groups["b"] = old
		c.mu.Unlock()
		c.set("b", 5)
		w.Now("shop", "b")
		require.Eventually(t, w.Idle, time.Minute, time.Millisecond)
		require.Zero(t, status(source, "b"))
		c.mu.Lock()
		c.groups["b"] = current
		c.mu.Unlock()
		require.Eventually(t, func() bool { return status(source, "b") == 5 }, time.Minute, time.Millisecond)
	})
}

func TestWriterGathersChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := crdtest.New(group("a"))
		c, w := start(t, source)
		go w.Run(t.Context())
		for i := range int32(50) {
			c.set("a", i)
			w.Later("shop", "a", 100*time.Millisecond)
		}
		time.Sleep(time.Minute)
		require.EqualValues(t, 49, status(source, "a"))
		require.Equal(t, 1, source.Writes())
		c.set("a", 100)
		w.Later("shop", "a", time.Hour)
		w.Now("shop", "a")
		synctest.Wait()
		require.EqualValues(t, 100, status(source, "a"), "what is urgent does not wait")
	})
}

// TestWriterTakesTurns: a namespace with many statuses to write does not keep another one waiting. All but the first of
// them wait here for the other's turn.
func TestWriterTakesTurns(t *testing.T) {
	const flood = 500
	objects := []client.Object{group("other")}
	for i := range flood {
		objects = append(objects, group(fmt.Sprintf("flood-%d", i)))
	}
	source := crdtest.New(objects...)
	c, w := start(t, source)
	for i := range flood {
		name := types.UID(fmt.Sprintf("flood-%d", i))
		c.set(name, 1)
		w.Later("flood", name, 0)
	}
	c.set("other", 1)
	w.Later("shop", "other", 0)
	var turns atomic.Int32
	others := make(chan struct{})
	c.turn = func(uid types.UID) {
		switch {
		case uid == "other":
			close(others)
		case turns.Add(1) > 20:
			select {
			case <-others:
			case <-t.Context().Done():
			}
		}
	}
	go w.Run(t.Context())
	require.Eventually(t, func() bool { return source.Writes() == flood+1 && w.Idle() }, time.Minute, time.Millisecond)
	require.EqualValues(t, 1, status(source, "other"))
	c.mu.Lock()
	defer c.mu.Unlock()
	require.Contains(t, c.written, "other")
}

func TestObjectIsCompiledWhenItsSpecChanges(t *testing.T) {
	compiled := 0
	compile := func(g *schedv1alpha1.PodGroup) (int32, field.ErrorList) {
		compiled++
		if g.Spec.MinMember < 0 {
			return g.Spec.MinMember, field.ErrorList{field.Invalid(field.NewPath("spec", "minMember"), g.Spec.MinMember, "must not be negative")}
		}
		return g.Spec.MinMember, nil
	}
	var o crd.Object[*schedv1alpha1.PodGroup, int32]
	require.False(t, o.Valid())

	g := group("a")
	g.Generation, g.Spec.MinMember = 1, 3
	require.True(t, o.See(g, compile))
	require.True(t, o.Valid())
	require.EqualValues(t, 3, o.Spec)

	g = g.DeepCopy()
	g.Status.Running = 1
	require.False(t, o.See(g, compile), "a new status only")
	require.Same(t, g, o.Latest)
	require.Equal(t, 1, compiled)

	g = g.DeepCopy()
	g.Generation, g.Spec.MinMember = 2, -1
	require.True(t, o.See(g, compile))
	require.False(t, o.Valid())
	require.Zero(t, o.Spec)
	require.ErrorContains(t, o.Errs.ToAggregate(), "spec.minMember")

	other := group("a")
	other.UID, other.Generation, other.Spec.MinMember = "other", 2, 5
	require.True(t, o.See(other, compile), "another object of the name")
	require.EqualValues(t, 5, o.Spec)
}
