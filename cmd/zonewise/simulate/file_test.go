package simulate

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/test/clitest"
)

func FuzzParseWorkload(f *testing.F) {
	f.Add(gangManifest, 2)
	f.Add("apiVersion: v1\nkind: Pod\nmetadata: {name: p}", 1)
	f.Add("apiVersion: apps/v1\nkind: Deployment\nspec: {replicas: 3, template: {spec: {containers: [{resources: {requests: {cpu: 1}}}]}}}", 1)
	f.Fuzz(func(t *testing.T, manifest string, copies int) {
		if copies < 1 || copies > 3 {
			return
		}
		w, err := ParseWorkload("fuzz", strings.NewReader(manifest), "shop", copies, snapshot.New(clitest.Now))
		if err != nil || len(w.Pods) > 50 {
			return
		}
		if len(w.Pods)%copies != 0 {
			t.Fatalf("%d pods of %d copies", len(w.Pods), copies)
		}
	})
}

// TestFilesHaveMoreThanWorkloads: what a chart renders is taken as it is. What decides nothing is left out, and named.
func TestFilesHaveMoreThanWorkloads(t *testing.T) {
	w := parse(t, `
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
---
apiVersion: monitoring.example.com/v1
kind: ServiceMonitor
metadata: {name: web}
---
apiVersion: monitoring.example.com/v1
kind: ServiceMonitor
metadata: {name: api}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: none, resources: {requests: {cpu: "1"}}}]}
`, 1)
	c := zones("8")
	r := run(t, c, &Scenario{Added: w})
	require.Equal(t, []int{2, 2, 0}, []int{r.Added, r.Placed, r.Pending})
	require.Equal(t, "Deployment shop/web", r.Workloads[0].Name)
	require.Equal(t, []string{"the file's objects of kind ConfigMap are left out", "the file's objects of kind ServiceMonitor are left out"}, r.Notes)
	require.Len(t, w.others, 3, "the Service, the Deployment and its ReplicaSet")
}
