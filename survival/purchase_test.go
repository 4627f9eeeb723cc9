package survival_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/sim"
	"zonewise.dev/survival"
	"zonewise.dev/test/clitest"
)

// purchaseFor returns the certificate of a cluster, and what would have to be bought.
func purchaseFor(t *testing.T, c *clitest.Cluster, asked *v1alpha1.ZoneSurvival) (v1alpha1.ZoneSurvivalStatus, *v1alpha1.SurvivalPurchase) {
	t.Helper()
	options := survival.Options{Sim: sim.Options{Now: clitest.Now}, Replays: 3}
	status := certify(t, c, asked, options)
	return status, searchPurchase(t, c, asked, options, &status)
}

// searchPurchase searches to the end.
func searchPurchase(
	t *testing.T, c *clitest.Cluster, asked *v1alpha1.ZoneSurvival, options survival.Options, status *v1alpha1.ZoneSurvivalStatus,
) *v1alpha1.SurvivalPurchase {
	t.Helper()
	search := survival.NewPurchaseSearch(t.Context(), c.Objects(), asked, options, status)
	if search == nil {
		return nil
	}
	defer search.Close()
	for search.Step() {
	}
	return search.Found()
}

func inWords(p *v1alpha1.SurvivalPurchase) string {
	switch {
	case p == nil:
		return "nothing"
	case !p.Enough:
		return "not enough"
	}
	var parts []string
	for _, n := range p.Nodes {
		parts = append(parts, fmt.Sprintf("%d like %s in %s", n.Nodes, n.Like, n.Zone))
	}
	return strings.Join(parts, ", ")
}

// TestPurchase: which nodes a broken certificate lacks. The nodes a, b and c have 8 CPUs.
func TestPurchase(t *testing.T) {
	for _, tc := range []struct {
		name    string
		cluster func(c *clitest.Cluster)
		asked   func(s *v1alpha1.ZoneSurvival)
		want    string
	}{
		{
			name:    "nothing is lacking",
			cluster: func(c *clitest.Cluster) { deploy(c, "web", "2", nil, "a", "a", "b", "c") },
			want:    "nothing",
		},
		{
			name:    "one node would be lost with its zone",
			cluster: func(c *clitest.Cluster) { deploy(c, "web", "4", nil, "a", "b", "b", "c", "c") },
			want:    "1 like a in a, 1 like b in b",
		},
		{
			name:    "one zone may be lost",
			cluster: func(c *clitest.Cluster) { deploy(c, "web", "4", nil, "a", "b", "b", "c", "c") },
			asked:   func(s *v1alpha1.ZoneSurvival) { s.Spec.Survive = v1alpha1.SurvivalLosses{ZoneNames: []string{"a"}} },
			want:    "1 like b in b",
		},
		{
			name: "nodes of a fitting size, in the place of a lost node",
			cluster: func(c *clitest.Cluster) {
				c.Node("small", "a", "4", "32Gi")
				deploy(c, "web", "5", nil, "a")
				deploy(c, "other", "4", nil, "b", "c")
			},
			asked: func(s *v1alpha1.ZoneSurvival) { againstNodes(s, 1) },
			want:  "1 like a in a",
		},
		{
			name: "pods that are not protected take new room first",
			cluster: func(c *clitest.Cluster) {
				deploy(c, "web", "4", nil, "a")
				deploy(c, "other", "4", nil, "a", "b", "b", "c", "c", "")
			},
			asked: func(s *v1alpha1.ZoneSurvival) { s.Spec.Survive = v1alpha1.SurvivalLosses{ZoneNames: []string{"a"}} },
			want:  "2 like b in b",
		},
		{
			name: "of the pool where the pods are, of which there are fewer nodes than of others",
			cluster: func(c *clitest.Cluster) {
				for _, size := range []string{"1", "2", "3"} {
					c.Node("one-"+size, "b", size, "32Gi")
					c.Node("two-"+size, "b", size, "32Gi")
				}
				for _, zone := range []string{"a", "b"} {
					c.Node("pool-"+zone, zone, "8", "32Gi").Labels["pool"] = "web"
				}
				deploy(c, "web", "8", func(t *v1.PodTemplateSpec) { t.Spec.NodeSelector = map[string]string{"pool": "web"} }, "pool-a", "pool-b")
			},
			asked: func(s *v1alpha1.ZoneSurvival) { s.Spec.Survive = v1alpha1.SurvivalLosses{ZoneNames: []string{"a"}} },
			want:  "1 like pool-b in b",
		},
		{
			name: "no node helps",
			cluster: func(c *clitest.Cluster) {
				deploy(c, "web", "1", func(t *v1.PodTemplateSpec) {
					t.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{clitest.ZoneSpread("web", 1)}
					t.Spec.TopologySpreadConstraints[0].MinDomains = ptr.To[int32](3)
				}, "a", "b", "c")
			},
			want: "not enough",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, asked := zones(), protecting("web")
			tc.cluster(c)
			if tc.asked != nil {
				tc.asked(asked)
			}
			_, purchase := purchaseFor(t, c, asked)
			require.Equal(t, tc.want, inWords(purchase))
		})
	}
	t.Run("the losses are too large for a search", func(t *testing.T) {
		c := zones()
		deploy(c, "web", "1m", nil, strings.Split(strings.Repeat("a ", 3001)+"b", " ")...)
		status := v1alpha1.ZoneSurvivalStatus{Losses: []v1alpha1.SurvivalLoss{{Zone: "a", Waiting: 1}}}
		options := survival.Options{Sim: sim.Options{Now: clitest.Now}}
		require.Nil(t, searchPurchase(t, c, protecting("web"), options, &status))
	})
}

// TestPurchaseIsEnough: with the nodes of a purchase the certificate is True, and with one fewer of any kind it is not.
func TestPurchaseIsEnough(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	found := 0
	for found < 4 {
		c, asked := random(r), protecting("web")
		before, purchase := purchaseFor(t, c, asked)
		require.Equal(t, meta.IsStatusConditionFalse(before.Conditions, v1alpha1.ConditionSurvives), purchase != nil)
		if purchase == nil || !purchase.Enough {
			continue
		}
		found++
		require.NotEmpty(t, purchase.Nodes)
		require.True(t, survivesWith(t, c, asked, purchase), "%s", inWords(purchase))
		for i := range purchase.Nodes {
			fewer := purchase.DeepCopy()
			fewer.Nodes[i].Nodes--
			require.False(t, survivesWith(t, c, asked, fewer), "%s, of %s", inWords(fewer), inWords(purchase))
		}
	}
}

// TestPurchaseIsTheLeast: if nodes like one of the cluster are enough after the loss of a zone, the purchase is as many as brute force finds: no node of another kind needs fewer.
func TestPurchaseIsTheLeast(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 9))
	asked := protecting("web", "api")
	asked.Spec.Survive = v1alpha1.SurvivalLosses{ZoneNames: []string{"a"}}
	several := 0
	for found := 0; found < 6 || several == 0; {
		c := random(r)
		_, purchase := purchaseFor(t, c, asked)
		if purchase == nil {
			continue
		}
		found++
		const most = 8
		fewest := int64(most + 1)
		for _, node := range snapshot.List[*v1.Node](c.Snapshot) {
			bought := func(n int64) *v1alpha1.SurvivalPurchase {
				return &v1alpha1.SurvivalPurchase{Enough: true, Nodes: []v1alpha1.SurvivalPurchasedNodes{{Nodes: n, Like: node.Name}}}
			}
			if node.Labels[v1.LabelTopologyZone] == "a" {
				continue
			}
			for n := int64(1); n < fewest; n++ {
				if survivesWith(t, c, asked, bought(n)) {
					fewest = n
				}
			}
		}
		if fewest > most {
			require.NotEqual(t, 1, len(purchase.Nodes), "%s", inWords(purchase))
			continue
		}
		if fewest > 1 {
			several++
		}
		require.Len(t, purchase.Nodes, 1, "%s", inWords(purchase))
		require.Equal(t, fewest, purchase.Nodes[0].Nodes, "%s", inWords(purchase))
	}
}

// survivesWith certifies the cluster with the nodes of a purchase.
func survivesWith(t *testing.T, c *clitest.Cluster, asked *v1alpha1.ZoneSurvival, purchase *v1alpha1.SurvivalPurchase) bool {
	t.Helper()
	larger, err := sim.New(t.Context(), c.Objects(), sim.Options{Now: clitest.Now})
	require.NoError(t, err)
	defer larger.Close()
	for _, n := range purchase.Nodes {
		_, err := larger.AddNodes(int(n.Nodes), n.Like)
		require.NoError(t, err)
	}
	status, err := survival.Certify(t.Context(), larger.Objects(), []*v1alpha1.ZoneSurvival{asked}, survival.Options{Sim: sim.Options{Now: clitest.Now}, Replays: 3})
	require.NoError(t, err)
	return meta.IsStatusConditionTrue(status[0].Conditions, v1alpha1.ConditionSurvives)
}
