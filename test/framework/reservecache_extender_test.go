package framework

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"

	"zonewise.dev/apis/v1alpha1"
)

// TestAnOwnerTakesItsSlotWhereAnExtenderLeavesItNothingElse: the only node with free room is one that an extender rejects. ReserveCache does
// not ask extenders, so it keeps no owner off its slots for the sake of that node.
func TestAnOwnerTakesItsSlotWhereAnExtenderLeavesItNothingElse(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var args extenderv1.ExtenderArgs
		if err := json.NewDecoder(r.Body).Decode(&args); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		rejected := func(name string) bool { return name == "free" }
		names := slices.DeleteFunc(slices.Clone(*args.NodeNames), rejected)
		_ = json.NewEncoder(w).Encode(extenderv1.ExtenderFilterResult{NodeNames: &names})
	}))
	t.Cleanup(server.Close)
	server.Config.SetKeepAlivesEnabled(false) // an open connection is something to wait for, in a bubble
	bubble(t, func(t *testing.T) {
		c := newCluster(t, reserveCacheOnly)
		c.maxBackoff = 1
		c.extender = &config.Extender{URLPrefix: server.URL, FilterVerb: "filter", NodeCacheCapable: true}
		c.start()
		c.smallNode("held", "a", "1", nil)
		c.smallNode("free", "b", "8", nil)
		c.reservations.apply(reservation("r", "web", 1, func(r *v1alpha1.ZoneReservation) {
			r.Spec.Slots, r.Spec.Zones = nil, []v1alpha1.ReservationZone{{Name: "a", Slots: 1}}
		}))
		c.requireSlots("r", 1, 0)
		c.pod("web-0", "web", "1", nil)
		c.waitNode("web-0")
		c.requireSlots("r", 0, 0)
	})
}
