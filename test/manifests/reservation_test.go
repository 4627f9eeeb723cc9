package manifests

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// useReservation holds a slot and waits for the status and the Event that say so.
func (c *cluster) useReservation(t *testing.T) {
	r := reservation("headroom", "nobody", "100m")
	r.Spec.Slots = ptr.To[int32](1)
	c.make(t, r)
	until(t, "the reservation's status", func(ctx context.Context) (bool, error) {
		err := c.api.Get(ctx, client.ObjectKeyFromObject(r), r)
		return r.Status.Slots.Held == 1, err
	})
	until(t, "the Event that tells of it", func(ctx context.Context) (bool, error) {
		list, err := c.client.EventsV1().Events(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: "reason=AllSlotsHeld"})
		return err == nil && len(list.Items) > 0, err
	})
	// The tests that follow fill the nodes.
	require.NoError(t, c.api.Delete(t.Context(), r))
}
