package permitgate

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/internal/leader"
)

// TestFirstCycleTakesTheLead: what the first cycle leads to has somebody to report it, however late the goroutine is
// that waits for the lead.
func TestFirstCycleTakesTheLead(t *testing.T) {
	taken := false
	shared := NewShared()
	shared.leader = leader.Of(t.Context(), handleOf{factory: informers.NewSharedInformerFactory(fake.NewSimpleClientset(), 0)})
	shared.takeLead = func() { taken = true }
	(&PermitGate{shared: shared}).startCycle(t.Context())
	require.True(t, taken)
	<-shared.leader.Leading()
}

type handleOf struct {
	fwk.Handle
	factory informers.SharedInformerFactory
}

func (h handleOf) SharedInformerFactory() informers.SharedInformerFactory { return h.factory }
