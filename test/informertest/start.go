// Package informertest has what tests of informers need beside client-go's fake clientset.
package informertest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
)

// Start starts the informers of a factory and waits until each has listed and watches. An informer counts as synced
// after its list, and the fake clientset does not replay what is deleted between the two, as an API server does: the
// informer would keep it for ever. Nothing else may begin watches through the client meanwhile.
func Start(ctx context.Context, t testing.TB, factory informers.SharedInformerFactory, client *fake.Clientset) {
	t.Helper()
	before := watches(client)
	factory.StartWithContext(ctx)
	synced := factory.WaitForCacheSync(ctx.Done())
	require.Eventually(t, func() bool { return watches(client)-before >= len(synced) }, time.Minute, time.Millisecond)
}

// watches counts those that have begun.
func watches(client *fake.Clientset) int {
	n := 0
	for _, a := range client.Actions() {
		if a.GetVerb() == "watch" {
			n++
		}
	}
	return n
}
