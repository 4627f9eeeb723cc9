package survival_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/sim"
	"zonewise.dev/survival"
	"zonewise.dev/test/clitest"
)

var (
	clusters = flag.Int("clusters", 24, "how many random clusters have their certificates checked; at most 6 with -short")
	first    = flag.Uint64("first", 1, "the seed of the first cluster")
)

// TestCertificatesHold checks certificates of random clusters in two ways. Where no pod waits by the certificate, none
// waits in other replays of the same loss, with seeds that the certificate does not know, whether the Node objects are
// deleted or stay. And where no packing of the displaced pods exists at all, by a search of all of them, the
// certificate says that one waits.
func TestCertificatesHold(t *testing.T) {
	certificatesHold(t, 7, 2, protecting("web", "api"), func(loss *v1alpha1.SurvivalLoss) func(*v1.Node) bool { return inZone(loss.Zone) })
}

// TestNodeCertificatesHold: the same for the loss of single nodes, of which many are replayed on one copy.
func TestNodeCertificatesHold(t *testing.T) {
	certificatesHold(t, 11, 1, againstNodes(protecting("web", "api")), func(loss *v1alpha1.SurvivalLoss) func(*v1.Node) bool {
		return func(node *v1.Node) bool { return node.Name == loss.Node }
	})
}

// certificatesHold checks certificates of clusters of a stream of seeds, by so many other replays of each loss in each
// form.
func certificatesHold(t *testing.T, stream uint64, others int64, asked *v1alpha1.ZoneSurvival, taken func(*v1alpha1.SurvivalLoss) func(*v1.Node) bool) {
	t.Helper()
	held, broken, brokenWhileThere, impossible := 0, 0, 0, 0
	for i := range *clusters {
		seed := *first + uint64(i) //nolint:gosec // not negative
		t.Run(fmt.Sprintf("cluster %d", seed), func(t *testing.T) {
			c := random(rand.New(rand.NewPCG(seed, stream)))
			spread(c, seed)
			is := certify(t, c, asked, survival.Options{})
			for i := range is.Losses {
				loss := &is.Losses[i]
				if !packable(c, taken(loss)) {
					impossible++
					require.Positive(t, loss.Waiting, "no packing exists after the loss of %s", loss.What())
				}
				for _, lost := range []func(*sim.Sim, func(*v1.Node) bool) *sim.Loss{(*sim.Sim).Lose, (*sim.Sim).Fail} {
					if loss.Waiting > 0 {
						break
					}
					held++
					for other := range others {
						require.Empty(t, lose(t, c, lost, taken(loss), 100+other), "after the loss of %s with seed %d", loss.What(), 100+other)
					}
				}
				if loss.Waiting > 0 {
					broken++
				}
				if loss.NodesStay {
					brokenWhileThere++
					require.Empty(t, lose(t, c, (*sim.Sim).Lose, taken(loss), 100), "once the nodes of %s are deleted", loss.What())
				}
			}
		})
	}
	t.Logf("%d losses are survived, each form counted; %d are not, %d of them while the nodes are there, %d have no packing", held, broken, brokenWhileThere, impossible)
	require.Positive(t, held)
	if !testing.Short() { // a few clusters may survive all losses
		require.Positive(t, broken)
		require.Positive(t, brokenWhileThere)
		require.Positive(t, impossible)
	}
}

// spread gives three in four clusters rules over zones: a policy, or a constraint that counts nodes with taints, or one
// that does not.
func spread(c *clitest.Cluster, seed uint64) {
	constraint := clitest.ZoneSpread("web", 1+int32(seed/4%2)) //nolint:gosec // 1 or 2
	switch seed % 4 {
	case 0:
		return
	case 1:
		for _, app := range []string{"web", "api"} {
			c.Policy(app, func(p *v1alpha1.ZoneSpreadPolicySpec) {
				p.MaxSkew = 1 + int32(seed/4%2) //nolint:gosec // 1 or 2
				p.UnavailableZones.DownAfter, p.UnavailableZones.FullAfter = &metav1.Duration{Duration: time.Minute}, &metav1.Duration{Duration: 2 * time.Minute}
			})
		}
		return
	case 2:
		constraint.NodeTaintsPolicy = ptr.To(v1.NodeInclusionPolicyHonor)
	}
	var on []string // a pod in each zone, which asks for nothing
	for _, zone := range []string{"a", "b", "c"} {
		on = append(on, zone+"0")
	}
	c.Running("front", "0", func(t *v1.PodTemplateSpec) { t.Labels["app"], t.Spec.Priority = "web", ptr.To[int32](10) }, on...)
	for _, pod := range c.Pods() {
		if pod.Labels["app"] == "web" {
			pod.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{constraint}
		}
	}
}

// random returns a cluster of three zones, rather full, with protected services web and api and other pods of the same
// or a lower priority.
func random(r *rand.Rand) *clitest.Cluster {
	c := clitest.New()
	var nodes []string
	free := map[string]int{}
	for _, zone := range []string{"a", "b", "c"} {
		for i := range 1 + r.IntN(2) {
			name := fmt.Sprintf("%s%d", zone, i)
			free[name] = 4 + 2*r.IntN(3)
			c.Node(name, zone, fmt.Sprint(free[name]), "64Gi")
			nodes = append(nodes, name)
		}
	}
	for _, app := range []string{"web", "api", "same", "batch"} {
		cpu, low := 1+r.IntN(3), int32(10)
		if app == "batch" {
			low = 0
		}
		var on []string
		for range r.IntN(5) {
			if node := nodes[r.IntN(len(nodes))]; free[node] >= cpu {
				free[node] -= cpu
				on = append(on, node)
			}
		}
		c.Running(app, fmt.Sprint(cpu), priority(low), on...)
	}
	return c
}

// inZone is the loss of a zone.
func inZone(zone string) func(*v1.Node) bool {
	return func(node *v1.Node) bool { return node.Labels[v1.LabelTopologyZone] == zone }
}

// lose replays a loss once more in a form, and returns the protected pods that wait.
func lose(t *testing.T, c *clitest.Cluster, lost func(*sim.Sim, func(*v1.Node) bool) *sim.Loss, taken func(*v1.Node) bool, seed int64) []string {
	t.Helper()
	s, err := sim.New(t.Context(), c.Objects(), sim.Options{Now: clitest.Now, Seed: seed})
	require.NoError(t, err)
	defer s.Close()
	lost(s, taken)
	require.NoError(t, s.Run(t.Context()))
	return waiting(s)
}

// waiting are the protected pods that wait, each with the reason.
func waiting(s *sim.Sim) (out []string) {
	for _, pod := range sim.List[*v1.Pod](s) {
		if app := pod.Labels["app"]; (app == "web" || app == "api") && pod.Spec.NodeName == "" {
			out = append(out, pod.Name+": "+s.WhyWaits(pod))
		}
	}
	return out
}

// packable reports whether the protected pods of lost nodes have any place on the others, however they are placed, if
// pods of a lower priority go and all others stay.
func packable(c *clitest.Cluster, taken func(*v1.Node) bool) bool {
	free := map[string]int64{}
	for _, node := range snapshot.List[*v1.Node](c.Snapshot) {
		if !taken(node) {
			free[node.Name] = node.Status.Allocatable.Cpu().Value()
		}
	}
	var displaced []int64
	for _, pod := range c.Pods() {
		cpu := pod.Spec.Containers[0].Resources.Requests.Cpu().Value()
		_, stays := free[pod.Spec.NodeName]
		switch app := pod.Labels["app"]; {
		case app == "batch":
		case stays:
			free[pod.Spec.NodeName] -= cpu
		case app != "same":
			displaced = append(displaced, cpu)
		}
	}
	return pack(displaced, free)
}

func pack(pods []int64, free map[string]int64) bool {
	if len(pods) == 0 {
		return true
	}
	for node := range free {
		if free[node] < pods[0] {
			continue
		}
		free[node] -= pods[0]
		fits := pack(pods[1:], free)
		free[node] += pods[0]
		if fits {
			return true
		}
	}
	return false
}
