package manifests

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// zoneReservations is the resource of ReserveCache's reservations.
var zoneReservations = schema.GroupVersionResource{Group: "zonewise.dev", Version: "v1alpha1", Resource: "zonereservations"}

// useReservation holds a slot and waits for the status and the Event that say so.
func (c *cluster) useReservation(t *testing.T) {
	c.reserve(t, "headroom")
	until(t, "the reservation's status", func(ctx context.Context) (bool, error) {
		u, err := c.dynamic.Resource(zoneReservations).Get(ctx, "headroom", metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		held, _, _ := unstructured.NestedInt64(u.Object, "status", "slots", "held")
		return held == 1, nil
	})
	until(t, "the Event that tells of it", func(ctx context.Context) (bool, error) {
		list, err := c.client.EventsV1().Events(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: "reason=AllSlotsHeld"})
		return err == nil && len(list.Items) > 0, err
	})
	// The tests that follow fill the nodes.
	require.NoError(t, c.dynamic.Resource(zoneReservations).Delete(t.Context(), "headroom", metav1.DeleteOptions{}))
}

// reserve makes a reservation of one slot, for nobody.
func (c *cluster) reserve(t *testing.T, name string) {
	t.Helper()
	_, err := c.dynamic.Resource(zoneReservations).Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": zoneReservations.GroupVersion().String(), "kind": "ZoneReservation",
		"metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"owners": []any{map[string]any{"namespace": namespace, "podSelector": map[string]any{"matchLabels": map[string]any{"app": "nobody"}}}},
			"slot":   map[string]any{"requests": map[string]any{"cpu": "100m"}},
			"slots":  int64(1),
		},
	}}, metav1.CreateOptions{})
	require.NoError(t, err)
}
