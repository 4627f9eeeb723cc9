package framework

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestBindIsRefusedForLong: the API server refuses the bind of one member by its name, which no rehearsal of a sibling shows. Its node is kept for
// one more attempt and not for ever, other pods hear why they have to wait until then, and the gang is whole a second after the refusal has
// ended, however long that has lasted.
func TestBindIsRefusedForLong(t *testing.T) {
	for _, api := range []string{"PodGroup CRD", "native"} {
		inAPI := bubble
		if api == "native" {
			inAPI = func(t *testing.T, f func(t *testing.T)) { t.Helper(); nativeBubble(t, api, f) }
		}
		t.Run(api, func(t *testing.T) {
			inAPI(t, func(t *testing.T) {
				c := startGangCluster(t, guarded, 3, 1)
				c.bind("node-1", member("", "busy"))
				var refuses atomic.Bool
				refuses.Store(true)
				c.refuseBinds(func(pod string) error {
					if pod == "g-1" && refuses.Load() {
						return errors.New("admission webhook denied the request: not this one")
					}
					return nil
				})
				names := []string{"g-0", "g-1", "g-2"}
				if api == "native" {
					c.createNativeGang("g", 3)
				} else {
					c.createGang("g", 3)
				}
				c.requireBound("g-0", "g-2")
				c.create(member("", "other"))
				c.quiet()
				c.pass(30 * time.Second)
				require.Len(t, c.boundAmong("other"), 1, "the node is still kept: %s", refusal(c.getPod("other")))
				c.delete("busy")
				c.pass(5 * time.Minute)
				refuses.Store(false)
				ended := c.clock.Now()
				c.requireBound(names...)
				require.LessOrEqual(t, c.clock.Since(ended), 2*time.Second)
			})
		})
	}
}
