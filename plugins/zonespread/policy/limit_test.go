package policy_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/plugins/zonespread/policy"
)

// TestWithinLimit: the youngest policies of a namespace with too many are left out, by their UIDs where they are of one
// age, and the order stays.
func TestWithinLimit(t *testing.T) {
	noon := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	var all []*v1alpha1.ZoneSpreadPolicy
	add := func(namespace, uid string, age time.Duration) {
		all = append(all, &v1alpha1.ZoneSpreadPolicy{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: uid, UID: types.UID(uid), CreationTimestamp: metav1.NewTime(noon.Add(-age)),
		}})
	}
	add("many", "youngest", 0)
	add("many", "z-of-one-age", time.Minute)
	for i := range policy.NamespaceLimit - 1 {
		add("many", fmt.Sprint("old-", i), time.Hour+time.Duration(i)*time.Second)
	}
	add("few", "alone", 0)
	add("many", "a-of-one-age", time.Minute)

	got := policy.WithinLimit(all)
	want := slices.DeleteFunc(slices.Clone(all), func(p *v1alpha1.ZoneSpreadPolicy) bool {
		return p.Name == "youngest" || p.Name == "z-of-one-age"
	})
	require.Equal(t, want, got)
	require.Equal(t, "youngest", all[0].Name, "what is given stays as it is")
}
