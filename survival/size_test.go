package survival

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"zonewise.dev/apis/v1alpha1"
)

// TestStatusFitsIntoEtcd: of 50 zones, or of as many as the API takes, a status has no more than half of what etcd
// takes, however long the scheduler's words are. What decides stays: each loss, a witness, and the zones that have
// least free.
func TestStatusFitsIntoEtcd(t *testing.T) {
	const etcdLimit = 1.5 * (1 << 20)
	for _, zones := range []int{3, 50, 1000} {
		c := newCertificate(&v1alpha1.ZoneSurvival{})
		for i := range zones {
			lost := v1alpha1.SurvivalLoss{Zone: fmt.Sprintf("europe-west-%04d", i), Displaced: 10, Waiting: 10}
			for j := range zones {
				if j == i {
					continue
				}
				m := v1alpha1.SurvivalMargin{Zone: fmt.Sprintf("europe-west-%04d", j), Free: v1.ResourceList{}, Allocatable: v1.ResourceList{}}
				for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage, "example.com/gpu"} {
					m.Allocatable[name], m.Free[name] = resource.MustParse("100000"), *resource.NewQuantity(int64(50_000-j), resource.DecimalSI)
				}
				lost.Margin = append(lost.Margin, m)
			}
			for j := range maxWitnesses {
				lost.Witnesses = append(lost.Witnesses, v1alpha1.SurvivalWitness{
					Namespace: strings.Repeat("n", 63), Name: fmt.Sprintf("%s-%d", strings.Repeat("p", 250), j), Why: strings.Repeat("w", 1024),
				})
			}
			l := loss{zone: lost.Zone}
			c.losses[l] = &lossResult{loss: l, worst: [forms]*v1alpha1.SurvivalLoss{&lost}}
		}
		c.status.Pods = 10
		condition := c.conclude()
		require.Equal(t, v1alpha1.ReasonPodsWait, condition.Reason)
		require.Len(t, c.status.Losses, zones)
		content, err := json.Marshal(&c.status)
		require.NoError(t, err)
		require.Less(t, float64(len(content)), etcdLimit/2, "%d zones", zones)
		first := c.status.Losses[0]
		require.NotEmpty(t, first.Witnesses)
		require.Equal(t, fmt.Sprintf("europe-west-%04d", zones-1), first.Margin[len(first.Margin)-1].Zone, "the zone with least free")
		if zones == 3 {
			require.Len(t, first.Witnesses, maxWitnesses)
			require.Len(t, first.Margin, 2)
		}
	}
}
