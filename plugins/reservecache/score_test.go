package reservecache

import (
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/reservecache/ledger"
)

func TestTightness(t *testing.T) {
	most := ledger.Resources{MilliCPU: 4000, Memory: 1 << 40}
	for name, tc := range map[string]struct {
		left, most ledger.Resources
		score      int64
	}{
		"nothing is left":                      {ledger.Resources{}, most, fwk.MaxScore},
		"as much as anywhere":                  {most, most, fwk.MinScore},
		"half of one resource":                 {ledger.Resources{MilliCPU: 2000}, most, 75},
		"half of both":                         {ledger.Resources{MilliCPU: 2000, Memory: 1 << 39}, most, 50},
		"a resource that is left nowhere":      {ledger.Resources{MilliCPU: 1000}, ledger.Resources{MilliCPU: 4000}, 75},
		"a device":                             {ledger.Resources{Scalar: map[v1.ResourceName]int64{"example.com/gpu": 1}}, ledger.Resources{Scalar: map[v1.ResourceName]int64{"example.com/gpu": 4}}, 75},
		"the pod takes all there is, anywhere": {ledger.Resources{}, ledger.Resources{}, fwk.MaxScore},
	} {
		require.Equal(t, tc.score, tightness(&tc.left, &tc.most), name)
	}
}
