package serve

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
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
	require.Negative(t, compareAge(older, first))
	require.Negative(t, compareAge(first, second), "the name decides between those of one second")

	index := indexOwners([]*spec{older, first, second})
	web := podWith("shop", map[string]string{"app": "web"})
	require.Equal(t, &Owner{Claim: older.uid, Name: "ZoneReservation z"}, index.of(web))
	require.Nil(t, index.of(podWith("shop", map[string]string{"app": "db"})))
	require.Nil(t, index.of(podWith("other", map[string]string{"app": "web"})))
	require.Equal(t, []*spec{older, first, second}, index.matching(web))
}

// TestTheIndexFindsWhatAWalkFinds: the reservations that select a pod, under whichever label they are listed.
func TestTheIndexFindsWhatAWalkFinds(t *testing.T) {
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
			return owner{namespace: rapid.SampledFrom([]string{"shop", "shop", "elsewhere"}).Draw(t, "namespace"), selector: selector}
		}
		specs := []*spec{
			{name: "0", uid: "0", created: t0, owners: []owner{draw("first")}},
			{name: "1", uid: "1", created: t0, owners: []owner{draw("second")}},
			{name: "2", uid: "2", created: t0, owners: []owner{draw("third"), draw("fourth")}},
		}
		index := indexOwners(specs)
		// Every key is absent or has one of the values, or one that no selector names.
		choices := append([]string{"", "other"}, values...)
		for _, a := range choices {
			for _, b := range choices {
				set := map[string]string{}
				for key, value := range map[string]string{"a": a, "b": b} {
					if value != "" {
						set[key] = value
					}
				}
				var want []*spec
				for _, s := range specs {
					if slices.ContainsFunc(s.owners, func(o owner) bool { return o.namespace == "shop" && o.selector.Matches(labels.Set(set)) }) {
						want = append(want, s)
					}
				}
				pod := podWith("shop", set)
				require.Equal(t, want, index.matching(pod), "%v", set)
				if owner := index.of(pod); len(want) == 0 {
					require.Nil(t, owner, "%v", set)
				} else {
					require.Equal(t, want[0].uid, owner.Claim, "%v", set)
				}
			}
		}
	})
}
