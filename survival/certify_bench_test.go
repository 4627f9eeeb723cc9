package survival_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/sim"
	"zonewise.dev/survival"
	"zonewise.dev/test/clitest"
)

// BenchmarkCertify is a round of the controller on 5,000 nodes in three zones with 150,000 pods of 1,000 Deployments, of which every
// other one is spread over the zones: each zone is lost, by the default number of replays. cpu-s is what the process used of all cores.
func BenchmarkCertify(b *testing.B) {
	const nodes, apps, replicas = 5000, 1000, 150
	c := clitest.New()
	for i := range nodes {
		c.Node(fmt.Sprintf("node-%04d", i), string(rune('a'+i%3)), "32", "128Gi")
	}
	asked := protecting()
	for i := range apps {
		app := fmt.Sprintf("app-%04d", i)
		on := make([]string, replicas)
		for j := range on {
			on[j] = fmt.Sprintf("node-%04d", (i*replicas+j)%nodes)
		}
		spread := func(t *v1.PodTemplateSpec) {
			if i%2 == 0 {
				t.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{{
					MaxSkew: 1, TopologyKey: v1.LabelTopologyZone, WhenUnsatisfiable: v1.DoNotSchedule,
					LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
				}}
			}
		}
		deploy(c, app, "500m", spread, on...)
		if i < 100 {
			asked.Spec.Workloads = append(asked.Spec.Workloads, protecting(app).Spec.Workloads...)
		}
	}
	objects := c.Objects()
	for b.Loop() {
		before := cpuSeconds(b)
		out, err := survival.Certify(b.Context(), objects, []*v1alpha1.ZoneSurvival{asked}, survival.Options{Sim: sim.Options{Now: clitest.Now}})
		require.NoError(b, err)
		require.Len(b, out[0].Losses, 3, "%+v", out[0])
		for _, loss := range out[0].Losses {
			require.Zero(b, loss.Waiting, "%+v", loss)
			require.NotZero(b, loss.Displaced)
		}
		b.ReportMetric(cpuSeconds(b)-before, "cpu-s/round")
	}
}

// cpuSeconds is the CPU time of the process.
func cpuSeconds(b *testing.B) float64 {
	b.Helper()
	var usage syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()).Seconds()
}
