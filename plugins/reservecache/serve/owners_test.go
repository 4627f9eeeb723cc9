package serve

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"zonewise.dev/apis/v1alpha1"
)

func mustCompile(t *testing.T, r *v1alpha1.ZoneReservation) *spec {
	t.Helper()
	s, errs := compile(r)
	require.Empty(t, errs)
	return s
}

func podWith(namespace string, labels map[string]string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "p", UID: "p", Labels: labels}}
}

func TestAPodBelongsToTheOldestReservation(t *testing.T) {
	older := mustCompile(t, reservation("z", 1, func(r *v1alpha1.ZoneReservation) { r.CreationTimestamp.Time = t0.Add(-time.Second) }))
	first, second := mustCompile(t, reservation("a", 1, nil)), mustCompile(t, reservation("b", 1, nil))
	require.True(t, older.before(first))
	require.True(t, first.before(second), "the name decides between those of one second")
	require.False(t, second.before(first))

	index := indexOwners([]*spec{older, first, second})
	web := podWith("shop", map[string]string{"app": "web"})
	require.Equal(t, &Owner{Claim: older.uid, Name: "ZoneReservation z", Use: older.use}, index.of(web))
	require.Nil(t, index.of(podWith("shop", map[string]string{"app": "db"})))
	require.Nil(t, index.of(podWith("other", map[string]string{"app": "web"})))

	require.Empty(t, index.overlaps(older))
	require.Equal(t, []string{"z"}, index.overlaps(first))
	require.Equal(t, []string{"a", "z"}, index.overlaps(second))
}

// TestOverlapIsWhatLabelsCanDo compares the answer with a search through all labels that the selectors can tell apart.
func TestOverlapIsWhatLabelsCanDo(t *testing.T) {
	keys, values := []string{"a", "b"}, []string{"x", "y", "z"}
	requirement := rapid.Custom(func(t *rapid.T) metav1.LabelSelectorRequirement {
		r := metav1.LabelSelectorRequirement{
			Key:      rapid.SampledFrom(keys).Draw(t, "key"),
			Operator: rapid.SampledFrom([]metav1.LabelSelectorOperator{metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist}).Draw(t, "operator"),
		}
		if r.Operator == metav1.LabelSelectorOpIn || r.Operator == metav1.LabelSelectorOpNotIn {
			r.Values = rapid.SliceOfNDistinct(rapid.SampledFrom(values), 1, 3, rapid.ID).Draw(t, "values")
		}
		return r
	})
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) owner {
			expressions := rapid.SliceOfN(requirement, 1, 4).Draw(t, name)
			selector, err := metav1.LabelSelectorAsSelector(&metav1.LabelSelector{MatchExpressions: expressions})
			require.NoError(t, err)
			requirements, _ := selector.Requirements()
			return owner{namespace: "shop", selector: selector, requirements: requirements}
		}
		one, other := draw("one"), draw("other")
		want := false
		// Every key is absent or has one of the values, or one that no selector names.
		choices := append([]string{""}, append([]string{"other"}, values...)...)
		for _, a := range choices {
			for _, b := range choices {
				set := labels.Set{}
				for key, value := range map[string]string{"a": a, "b": b} {
					if value != "" {
						set[key] = value
					}
				}
				want = want || one.selector.Matches(set) && other.selector.Matches(set)
			}
		}
		require.Equal(t, want, overlap(one, other), "%s and %s", one.selector, other.selector)
		other.namespace = "elsewhere"
		require.False(t, overlap(one, other))

		// The index finds what a walk through all reservations finds, whichever label it lists them under.
		other.namespace = "shop"
		specs := []*spec{
			{name: "0", uid: "0", created: t0, owners: []owner{one}},
			{name: "1", uid: "1", created: t0, owners: []owner{other}},
			{name: "2", uid: "2", created: t0, owners: []owner{draw("third"), draw("fourth")}},
		}
		index := indexOwners(specs)
		for _, a := range choices {
			for _, b := range choices {
				set := map[string]string{}
				for key, value := range map[string]string{"a": a, "b": b} {
					if value != "" {
						set[key] = value
					}
				}
				var want types.UID
				for _, s := range slices.Backward(specs) {
					for _, o := range s.owners {
						if o.selector.Matches(labels.Set(set)) {
							want = s.uid
						}
					}
				}
				got := types.UID("")
				if owner := index.of(podWith("shop", set)); owner != nil {
					got = owner.Claim
				}
				require.Equal(t, want, got, "%v", set)
			}
		}
	})
}

// overlap tells whether a pod can be selected by both, by the index of the first.
func overlap(one, other owner) bool {
	older, younger := &spec{name: "a", uid: "a", created: t0, owners: []owner{one}}, &spec{name: "b", uid: "b", created: t0, owners: []owner{other}}
	return len(indexOwners([]*spec{older, younger}).overlaps(younger)) > 0
}
