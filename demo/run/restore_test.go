package run

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestSurplusIsWhatKeepsAServiceFromBeingEven(t *testing.T) {
	for _, tc := range []struct {
		name    string
		a, b, c int
		from    map[string]int // node -> pods that go
	}{
		{"nothing", 0, 0, 0, map[string]int{}},
		{"even", 2, 2, 2, map[string]int{}},
		{"nearly even", 2, 1, 1, map[string]int{}},
		{"one zone is empty", 3, 3, 0, map[string]int{"na": 1, "nb": 1}},
		{"an odd pod stays where most are", 2, 2, 0, map[string]int{"nb": 1}},
		{"two odd pods", 3, 2, 0, map[string]int{"na": 1}},
		{"a single pod", 0, 1, 0, map[string]int{}},
		{"all in one", 6, 0, 0, map[string]int{"na": 4}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newScene().node("na", "a").node("nb", "b").node("nc", "c")
			for node, n := range map[string]int{"na": tc.a, "nb": tc.b, "nc": tc.c} {
				for range n {
					s.replica("web", node)
				}
			}
			s.replica("other", "na") // another service
			s.replica("web", "")     // waits
			s.member("gang", "na")
			s.replica("web", "nc").DeletionTimestamp = &metav1.Time{}
			nodes, pods := s.seen.lists()
			from := map[string]int{}
			for _, pod := range surplus([]string{"a", "b", "c"}, nodes, pods) {
				from[pod.Spec.NodeName]++
				require.Equal(t, "services", pod.Namespace)
			}
			require.Equal(t, tc.from, from)
		})
	}
}
