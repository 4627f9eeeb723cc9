package permitgate

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/permitgate/gang"
)

// releases is an account of holds that counts what is given back.
type releases struct {
	Holds

	of []types.UID
}

func (r *releases) Release(gang types.UID) []string {
	r.of = append(r.of, gang)
	return nil
}

func (*releases) Woken(context.Context) {}

// TestCollectingEnds: a starving gang gives back what it has collected after starvationAfter, but not within the minute
// that pods may take to end, and then lets others have the room for as long.
func TestCollectingEnds(t *testing.T) {
	for name, tt := range map[string]struct {
		starvationAfter, collectsFor time.Duration
	}{
		"a minute at least": {time.Second, time.Minute},
		"starvationAfter":   {5 * time.Minute, 5 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			account := &releases{}
			p, _ := newPlugin(t, WithPodGroups(noGroups))
			p.shared.args.StarvationAfter = metav1.Duration{Duration: tt.starvationAfter}
			member, _ := backingOff(p.shared, "train")
			key, _ := gangOf(member)
			look := func(since time.Duration) (e *entry) {
				p.shared.mu.Lock()
				defer p.shared.mu.Unlock()
				p.shared.holds = account
				e = p.shared.gangs[key]
				require.Equal(t, gang.Backoff, e.gang.Phase())
				e.held = &held{gang: "group-train", collects: true}
				e.collecting = collecting{since: time.Now().Add(-since)}
				p.shared.syncHoldsLocked(e)
				return e
			}
			e := look(tt.collectsFor - 10*time.Second)
			require.NotNil(t, e.held, "it still collects")
			require.Empty(t, account.of)

			e = look(tt.collectsFor)
			require.Nil(t, e.held)
			require.Equal(t, []types.UID{"group-train"}, account.of)
			require.WithinDuration(t, time.Now().Add(tt.collectsFor), e.collecting.pause, 10*time.Second)
		})
	}
}
