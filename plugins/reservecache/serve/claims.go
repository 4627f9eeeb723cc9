package serve

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/reservecache/floor"
	"zonewise.dev/plugins/reservecache/ledger"
)

// Claims are the reservations that apply, and the pods that belong to them. They do not change.
type Claims struct {
	List []floor.Claim
	// Counted means that it matters for one of them on which nodes its owners run.
	Counted bool

	owners *ownerIndex
}

// Settled says of the floor of the cycles for which claims it was last settled, and when.
type Settled struct {
	Claims *Claims
	At     time.Time
}

// OwnerOf returns what the pod's reservation gives it, or nil. For most pods it costs a map lookup. It may be called
// from any goroutine, also under the lock of the scheduling queue.
func (c *Claims) OwnerOf(pod *v1.Pod) *Owner {
	owner := c.owners.of(pod)
	if owner != nil && IgnoresSlots(pod) {
		return nil
	}
	return owner
}

// At returns a node as the ledger has it, for questions to a floor.
func (c *Claims) At(l *ledger.Ledger, name string, state *ledger.NodeState) floor.At {
	return floor.At{
		Node: name, Allocatable: state.Allocatable, Requested: state.Requested,
		Owned: func() map[types.UID]ledger.Resources { return c.OwnedOf(l, state.Pods) },
	}
}

// OwnedOf returns what the owners of each claim among some pods ask for, as far as that counts, their number in Pods;
// nil for none.
func (c *Claims) OwnedOf(l *ledger.Ledger, pods []*v1.Pod) (owned map[types.UID]ledger.Resources) {
	if !c.Counted {
		return nil
	}
	for _, pod := range pods {
		if owner := c.OwnerOf(pod); owner != nil && owner.Counted {
			requests := l.Requests(pod)
			owned = ledger.AddTo(owned, owner.Claim, &requests)
		}
	}
	return owned
}
