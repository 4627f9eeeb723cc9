package serve

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/internal/crd/crdtest"
	"zonewise.dev/plugins/zonespread/policy"
)

// TestTheOldestPoliciesOfANamespaceApply: in whatever order policies are seen, as after a restart, the oldest apply.
// When one of them goes, the next one applies, and other namespaces do not matter.
func TestTheOldestPoliciesOfANamespaceApply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		policies := make([]*v1alpha1.ZoneSpreadPolicy, policy.NamespaceLimit+3)
		for i := range policies {
			policies[i] = newPolicy(fmt.Sprintf("p-%04d", i))
			// Pairs are of one age, in which the UID decides. Else the younger ones have the smaller UIDs.
			policies[i].CreationTimestamp = metav1.NewTime(noon.Add(time.Duration(i/2) * time.Second))
			policies[i].UID = types.UID(fmt.Sprintf("%04d-%d", len(policies)-i/2, i%2))
		}
		other := newPolicy("other")
		other.Namespace = "another"
		other.CreationTimestamp = metav1.NewTime(noon.Add(time.Hour))

		source := crdtest.New(other)
		for _, i := range rand.Perm(len(policies)) {
			source.Put(policies[i])
		}
		w := newWorld(t, source, newNodes("a1", "b1", "c1")...)
		w.lead()
		applies := func(from, to int) {
			t.Helper()
			var want []string
			for _, p := range policies[from:to] {
				want = append(want, p.Namespace+"/"+p.Name)
			}
			var got []string
			for _, a := range w.For(newPod("pod", "")) {
				got = append(got, a.Key())
			}
			require.Equal(t, want, got)
		}
		accepted := func(p *v1alpha1.ZoneSpreadPolicy, want metav1.ConditionStatus) *metav1.Condition {
			t.Helper()
			var c *metav1.Condition
			w.eventually(fmt.Sprintf("%s has Accepted=%s", p.Name, want), func() bool {
				c = meta.FindStatusCondition(w.stored(p).Status.Conditions, v1alpha1.ConditionAccepted)
				return c != nil && c.Status == want
			})
			return c
		}
		applies(0, policy.NamespaceLimit)
		accepted(policies[0], metav1.ConditionTrue)
		accepted(other, metav1.ConditionTrue)
		for _, p := range policies[policy.NamespaceLimit:] {
			require.Equal(t, "metadata.namespace: Too many: must have at most 100 items",
				accepted(p, metav1.ConditionFalse).Message, "whatever the order")
		}

		source.Delete(policies[policy.NamespaceLimit+2]) // one that does not apply
		applies(0, policy.NamespaceLimit)
		source.Delete(policies[0])
		applies(1, policy.NamespaceLimit+1)
		accepted(policies[policy.NamespaceLimit], metav1.ConditionTrue)
		accepted(policies[policy.NamespaceLimit+1], metav1.ConditionFalse)

		old := newPolicy("old")
		old.CreationTimestamp = metav1.NewTime(noon.Add(-time.Hour))
		source.Put(old) // as of another API server's clock
		require.Len(t, w.For(newPod("pod", "")), policy.NamespaceLimit)
		accepted(policies[policy.NamespaceLimit], metav1.ConditionFalse)
		source.Delete(old)
		applies(1, policy.NamespaceLimit+1)
	})
}
