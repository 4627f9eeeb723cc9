package serve

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/clock"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/plugins/reservecache/holds"
	"zonewise.dev/plugins/reservecache/ledger"
	"zonewise.dev/plugins/reservecache/placement"
)

// FuzzReservation places whatever decodes as a ZoneReservation, as if no CustomResourceDefinition had looked at it, on a small cluster. Each
// error names a field. What is held never exceeds what a node has, and nothing is held once the reservation is gone.
func FuzzReservation(f *testing.F) {
	const owners = `"owners":[{"namespace":"shop","podSelector":{"matchLabels":{"app":"web"}}}]`
	for _, seed := range []string{
		`{` + owners + `,"slot":{"requests":{"cpu":"1","memory":"1Gi","example.com/gpu":"1"}},"slots":3}`,
		`{` + owners + `,"slot":{"requests":{"cpu":"1"},"nodeSelector":{"disk":"ssd"},"tolerations":[{"operator":"Exists"}]},"zones":[{"name":"a","slots":2},{"name":"b","slots":1}],"onZoneLoss":"Keep","mode":"Guarantee"}`,
		`{` + owners + `,"nodes":[{"name":"a1","amount":{"cpu":"500m","memory":"9223372036854775807"},"pods":2},{"name":"c1","amount":{"cpu":"1e30"}}],"priority":-5}`,
		`{` + owners + `,"slot":{"requests":{"cpu":"0","memory":"9223372036854775807"}},"slots":5000,"slotsPerNode":2,"ownerPolicy":"Required","ttl":"1h"}`,
		`{"owners":[{"namespace":"","podSelector":{}}],"slot":{"requests":{"pods":"1","cpu":"-1"}},"slots":0,"zones":[{"name":"","slots":-1}],"ttl":"-1s","mode":"x","ownerPolicy":"y"}`,
	} {
		f.Add([]byte(seed), uint8(1))
	}
	f.Fuzz(func(t *testing.T, raw []byte, pods uint8) {
		obj := &v1alpha1.ZoneReservation{}
		obj.Name, obj.UID = "r", "r"
		if json.Unmarshal(raw, &obj.Spec) != nil {
			return
		}
		s, errs := compile(obj)
		for _, err := range errs {
			require.NotEmpty(t, err.Field, err.Error())
		}
		if s == nil {
			require.NotEmpty(t, errs)
			return
		}
		l := ledger.New(ledger.DefaultOptions())
		for _, name := range []string{"a1", "a2", "b1", "c1"} {
			n := makeNode(name, "4")
			n.Labels[v1.LabelTopologyZone] = name[:1]
			n.Status.Allocatable[v1.ResourceMemory] = resource.MustParse("16Gi")
			l.AddNode(n)
		}
		for i := range min(pods, 20) { // more than the nodes have room for, too
			_, err := l.AddPod(makePod(fmt.Sprint("p", i), []string{"a1", "b1"}[i%2], "1", nil))
			require.NoError(t, err)
		}
		h := holds.New()
		p := placement.New(h, 1, nil)
		p.Set(s.target(0))
		settle := func() {
			for range 10_000 {
				snapshot := ledger.NewSnapshot()
				l.UpdateSnapshot(snapshot)
				if !p.Reconcile(func() placement.View { return snapshotView{snapshot, New(&Config{Clock: clock.RealClock{}})} }, nil).More {
					return
				}
			}
			t.Fatal("there is always more to do")
		}
		settle()
		snapshot := ledger.NewSnapshot()
		l.UpdateSnapshot(snapshot)
		for _, n := range snapshot.Nodes() {
			unused := h.Node(n.Node.Name).Unused(nil)
			if !unused.IsZero() {
				unused.Add(&n.Requested, 1)
				require.Empty(t, unused.Exceeds(&n.Allocatable), "%s", n.Node.Name)
			}
		}
		report, ok := p.Report("r")
		require.True(t, ok)
		require.GreaterOrEqual(t, report.Missing.Pods, int64(0))
		p.Remove("r")
		settle()
		for _, n := range snapshot.Nodes() {
			require.Nil(t, h.Node(n.Node.Name).Of("r"))
		}
	})
}
