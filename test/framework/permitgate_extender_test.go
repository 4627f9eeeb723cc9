package framework

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
)

const fpga = "example.com/fpga"

// TestResourceOfAnExtender: what an extender manages and kube-scheduler ignores, no gang is short of, whether nodes
// list it or not: the extender says where it is.
func TestResourceOfAnExtender(t *testing.T) {
	for name, listed := range map[string]string{"no node lists it": "", "a node lists too little": "1"} {
		t.Run(name, func(t *testing.T) {
			var asked atomic.Int64
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked.Add(1)
				var args extenderv1.ExtenderArgs
				if err := json.NewDecoder(r.Body).Decode(&args); err != nil {
					http.Error(w, err.Error(), http.StatusBadRequest)
					return
				}
				_ = json.NewEncoder(w).Encode(extenderv1.ExtenderFilterResult{NodeNames: args.NodeNames})
			}))
			t.Cleanup(server.Close)
			server.Config.SetKeepAlivesEnabled(false) // an open connection is something to wait for, in a bubble
			bubble(t, func(t *testing.T) {
				c := newGangCluster(t, 2, 2)
				if listed != "" {
					c.editNode("node-0", func(node *v1.Node) {
						node.Status.Allocatable[fpga], node.Status.Capacity[fpga] = resource.MustParse(listed), resource.MustParse(listed)
					})
				}
				c.extender = &config.Extender{
					URLPrefix: server.URL, FilterVerb: "filter", NodeCacheCapable: true,
					ManagedResources: []config.ExtenderManagedResource{{Name: fpga, IgnoredByScheduler: true}},
				}
				c.start(withArgs(slowBackoff))
				c.groups.set("g", 4)
				var names []string
				for i := range 4 {
					names = append(names, fmt.Sprintf("g-%d", i))
					pod := member("g", names[i])
					requests := &pod.Spec.Containers[0].Resources
					requests.Requests[fpga] = resource.MustParse("1")
					requests.Limits = v1.ResourceList{fpga: resource.MustParse("1")}
					c.create(pod)
				}
				c.requireBound(names...)
				require.Zero(t, c.recorder.count("PodGroup g GangRolledBack", ""))
				require.GreaterOrEqual(t, asked.Load(), int64(4), "the extender was asked about each member")
			})
		})
	}
}
