package podgroup

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
)

// FuzzSettings reads the settings of whatever decodes as a PodGroup. What applies is always valid, and what is not
// applied is complained of by its name.
func FuzzSettings(f *testing.F) {
	for _, seed := range []string{
		`{"spec":{"minMember":3,"scheduleTimeoutSeconds":60},"metadata":{"annotations":{"zonewise.dev/required-topology":"topology.kubernetes.io/zone"}}}`,
		`{"spec":{"scheduleTimeoutSeconds":-1},"metadata":{"annotations":{"zonewise.dev/preferred-topology":"a b"}}}`,
		`{"spec":{"scheduleTimeoutSeconds":2147483647},"metadata":{"annotations":{"zonewise.dev/required-topology":"","zonewise.dev/preferred-topology":"rack"}}}`,
		`{"metadata":{"annotations":{"zonewise.dev/required-topology":""}}}`,
		`{"spec":{"scheduleTimeoutSeconds":0}}`,
		`{"metadata":{"annotations":{"zonewise.dev/replacements":"OneByOne"}}}`,
		`{"metadata":{"annotations":{"zonewise.dev/replacements":"onebyone"}}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		group := &v1alpha1.PodGroup{}
		if json.Unmarshal(raw, group) != nil {
			return
		}
		timeout, complaint := TimeoutOf(group)
		require.True(t, timeout == 0 || timeout >= time.Second && timeout <= MaxTimeout, "%s", timeout)
		if seconds := group.Spec.ScheduleTimeoutSeconds; seconds != nil && (*seconds < 1 || time.Duration(*seconds)*time.Second > MaxTimeout) {
			require.Contains(t, complaint, "spec.scheduleTimeoutSeconds")
		} else {
			require.Empty(t, complaint)
		}

		oneByOne, complaint := ReplacedOneByOne(group)
		value, set := group.Annotations[ReplacementsAnnotation]
		require.Equal(t, value == ReplacementsOneByOne, oneByOne)
		if set && !oneByOne && value != ReplacementsTogether {
			require.Contains(t, complaint, ReplacementsAnnotation)
		} else {
			require.Empty(t, complaint)
		}

		topology, complaint := TopologyOf(group)
		if topology != (Topology{}) {
			require.Empty(t, content.IsLabelKey(topology.Key))
		}
		required, isRequired := group.Annotations[RequiredTopologyAnnotation]
		preferred, isPreferred := group.Annotations[PreferredTopologyAnnotation]
		switch {
		case isRequired && (len(content.IsLabelKey(required)) > 0 || isPreferred):
			require.Contains(t, complaint, RequiredTopologyAnnotation)
		case !isRequired && isPreferred && len(content.IsLabelKey(preferred)) > 0:
			require.Contains(t, complaint, PreferredTopologyAnnotation)
		default:
			require.Empty(t, complaint)
		}
	})
}
