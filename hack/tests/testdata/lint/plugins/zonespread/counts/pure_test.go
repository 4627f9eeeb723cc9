package counts

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/kubernetes/fake" // want depguard
	"pgregory.net/rapid"
)

// A test may use the test libraries and the clock.
func TestUIDs(t *testing.T) {
	require.NotNil(t, fake.NewClientset())
	rapid.Check(t, func(t *rapid.T) { require.Empty(t, UIDs(nil), time.Now()) })
}
