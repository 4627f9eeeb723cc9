package serve

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/plugins/reservecache/floor"
	"zonewise.dev/plugins/reservecache/ledger"
)

// FuzzReservation places whatever decodes as a ZoneReservation, as if no CustomResourceDefinition had looked at it, on
// a small cluster. Each error names a field. What is held never exceeds what a node has, and nothing is held once the
// reservation is gone.
func FuzzReservation(f *testing.F) {
	const owners = `"owners":[{"namespace":"shop","podSelector":{"matchLabels":{"app":"web"}}}]`
	for _, seed := range []string{
		`{` + owners + `,"slot":{"requests":{"cpu":"1","memory":"1Gi","example.com/gpu":"1"}},"slots":3}`,
		`{` + owners + `,"slot":{"requests":{"cpu":"1"},"nodeSelector":{"disk":"ssd"},"tolerations":[{"operator":"Exists"}]},"zones":[{"name":"a","slots":2},{"name":"b","slots":1}],"mode":"Guarantee"}`,
		`{` + owners + `,"slot":{"requests":{"cpu":"1e30"}},"slots":2,"priority":-5,"mode":"Guarantee"}`,
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
		claims := &Claims{List: []floor.Claim{s.claim(0)}, Counted: s.counted(), owners: indexOwners([]*spec{s})}
		f := floor.New(1)
		f.SetClaims(claims.List)
		snapshot := ledger.NewSnapshot()
		l.UpdateSnapshot(snapshot)
		for _, n := range snapshot.Nodes() {
			f.Update(&floor.Node{Object: n.Node, Allocatable: n.Allocatable, Requested: n.Requested, Owned: claims.OwnedOf(l, n.Pods)})
		}
		f.Settle()
		held := f.HeldOn()
		for _, n := range snapshot.Nodes() {
			if unused := held[n.Node.Name]; !unused.IsZero() {
				unused.Add(&n.Requested, 1)
				require.Empty(t, unused.Exceeds(&n.Allocatable), "%s", n.Node.Name)
			}
		}
		f.SetClaims(nil)
		f.Settle()
		for name, unused := range f.HeldOn() {
			require.True(t, unused.IsZero(), name)
		}
	})
}
