package amount_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"zonewise.dev/internal/amount"
)

func TestThereAndBack(t *testing.T) {
	for _, tc := range []struct {
		name  v1.ResourceName
		given string
		n     int64
		shown string
	}{
		{v1.ResourceCPU, "1.5", 1500, "1500m"},
		{v1.ResourceCPU, "100u", 1, "1m"}, // rounded up
		{v1.ResourceMemory, "2048Mi", 2 << 30, "2Gi"},
		{v1.ResourceEphemeralStorage, "1Gi", 1 << 30, "1Gi"},
		{"nvidia.com/gpu", "8", 8, "8"},
		{"example.com/dongle", "1500", 1500, "1500"},
	} {
		n := amount.Of(tc.name, resource.MustParse(tc.given))
		require.Equal(t, tc.n, n, "%s %s", tc.name, tc.given)
		require.Equal(t, tc.shown, amount.Quantity(tc.name, n).String(), "%s %d", tc.name, n)
		require.Equal(t, n, amount.Of(tc.name, *amount.Quantity(tc.name, n)))
	}
}
