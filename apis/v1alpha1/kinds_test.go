package v1alpha1

import (
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// TestEveryKindSaysWhatItHasSeen: tools that know nothing of a kind wait until status.observedGeneration is the object's generation,
// and then look at status.conditions.
func TestEveryKindSaysWhatItHasSeen(t *testing.T) {
	scheme := runtime.NewScheme()
	require.NoError(t, AddToScheme(scheme))
	kinds := 0
	for name, kind := range scheme.KnownTypes(SchemeGroupVersion) {
		if strings.HasSuffix(name, "List") || kind.PkgPath() != reflect.TypeFor[ZoneSpreadPolicy]().PkgPath() {
			continue
		}
		kinds++
		status, ok := kind.FieldByName("Status")
		require.True(t, ok, name)
		generation, ok := status.Type.FieldByName("ObservedGeneration")
		require.True(t, ok, name)
		require.Equal(t, reflect.TypeFor[int64](), generation.Type, name)
		require.Equal(t, "observedGeneration,omitempty", generation.Tag.Get("json"), name)
		conditions, ok := status.Type.FieldByName("Conditions")
		require.True(t, ok, name)
		require.Equal(t, reflect.TypeFor[[]metav1.Condition](), conditions.Type, name)
	}
	require.GreaterOrEqual(t, kinds, 4)
}
