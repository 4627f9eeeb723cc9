package informer_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"zonewise.dev/internal/informer"
)

func pod(uid types.UID) *v1.Pod { return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: uid}} }

func TestEvents(t *testing.T) {
	var got []string
	f := informer.Funcs[*v1.Pod]{
		Add: func(p *v1.Pod, initial bool) {
			if initial {
				got = append(got, "initial")
			}
			got = append(got, "add "+string(p.UID))
		},
		Update: func(was, is *v1.Pod) { got = append(got, "update "+string(was.UID)+" "+string(is.UID)) },
		Delete: func(p *v1.Pod) { got = append(got, "delete "+string(p.UID)) },
	}
	for _, tc := range []struct {
		name  string
		event func()
		want  []string
	}{
		{"add", func() { f.OnAdd(pod("1"), false) }, []string{"add 1"}},
		{"first list", func() { f.OnAdd(pod("1"), true) }, []string{"initial", "add 1"}},
		{"update", func() { f.OnUpdate(pod("1"), pod("1")) }, []string{"update 1 1"}},
		{"another object of the name", func() { f.OnUpdate(pod("1"), pod("2")) }, []string{"delete 1", "add 2"}},
		{"delete", func() { f.OnDelete(pod("1")) }, []string{"delete 1"}},
		{"delete, last state unknown", func() {
			f.OnDelete(toolscache.DeletedFinalStateUnknown{Key: "p", Obj: pod("1")})
		}, []string{"delete 1"}},
		{"tombstone without an object", func() { f.OnDelete(toolscache.DeletedFinalStateUnknown{Key: "p"}) }, nil},
		{"another type", func() { f.OnAdd(&v1.Node{}, false) }, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got = nil
			tc.event()
			require.Equal(t, tc.want, got)
		})
	}
	require.NotPanics(t, func() {
		var none informer.Funcs[*v1.Pod]
		none.OnAdd(pod("1"), false)
		none.OnUpdate(pod("1"), pod("2"))
		none.OnUpdate(pod("1"), pod("1"))
		none.OnDelete(pod("1"))
	})
}

func TestLatest(t *testing.T) {
	var got []string
	f := informer.Latest(
		func(p *v1.Pod) { got = append(got, "seen "+string(p.UID)) },
		func(p *v1.Pod) { got = append(got, "gone "+string(p.UID)) },
	)
	f.OnAdd(pod("1"), true)
	f.OnUpdate(pod("1"), pod("1"))
	f.OnUpdate(pod("1"), pod("2"))
	f.OnDelete(pod("2"))
	require.Equal(t, []string{"seen 1", "seen 1", "gone 1", "seen 2", "gone 2"}, got)
}
