package published_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/component-base/configz"

	"zonewise.dev/internal/published"
)

func TestPodBackoff(t *testing.T) {
	initial, longest := published.PodBackoff()
	require.Equal(t, []time.Duration{time.Second, 10 * time.Second}, []time.Duration{initial, longest}, "nothing is published")

	config, err := configz.New("componentconfig")
	require.NoError(t, err)
	t.Cleanup(func() { configz.Delete("componentconfig") })
	require.NoError(t, config.Set(&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
		"podInitialBackoffSeconds": int64(0), "podMaxBackoffSeconds": int64(300),
	}}))
	initial, longest = published.PodBackoff()
	require.Equal(t, []time.Duration{0, 5 * time.Minute}, []time.Duration{initial, longest}, "as it is configured")
}
