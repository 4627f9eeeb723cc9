package permitgate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/plugins/permitgate/podgroup"
)

// TestLabelledPodsAreNotKeptForEver: those of a native group come and go for as long as the group exists, and a process that
// does not lead tells of none.
func TestLabelledPodsAreNotKeptForEver(t *testing.T) {
	id := gangNamed("job")
	id.Native = true
	group := func(basic bool) *podgroup.Group {
		return &podgroup.Group{ID: id, Object: &metav1.ObjectMeta{Namespace: id.Namespace, Name: id.Name}, Basic: basic}
	}
	for name, tt := range map[string]struct {
		group      *podgroup.Group // nil if it is not known
		leads      bool
		told, kept []string
	}{
		"the leader tells of all at once":  {group(true), true, []string{"waits", "runs", "gone"}, nil},
		"a standby keeps what it may tell": {group(true), false, nil, []string{"waits"}},
		"the group is a gang's":            {group(false), false, nil, nil},
		"the group is not known":           {nil, true, nil, []string{"waits", "runs"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGangs(clocktesting.NewFakeClock(time.Unix(1_000_000, 0)))
			g.change(id, func(e *gangEntry, now time.Time) {
				for _, name := range []string{"waits", "runs", "gone"} {
					pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: id.Namespace, Name: name, UID: types.UID(name), Labels: map[string]string{v1alpha1.PodGroupLabel: "train"}}}
					e.updateMember(&member{pod: pod}, false, now)
					if name == "runs" {
						pod = pod.DeepCopy()
						pod.Spec.NodeName = "a1"
						e.updateMember(&member{pod: pod}, false, now)
					}
				}
				e.remove("gone")
				if tt.group != nil {
					e.setGroup(tt.group, now)
				}
				names := func(pods []*v1.Pod) (names []string) {
					for _, pod := range pods {
						names = append(names, pod.Name)
					}
					return names
				}
				require.Equal(t, tt.told, names(e.takeLabelled(tt.leads)))
				require.Equal(t, tt.kept, names(e.labelled))
			})
		})
	}
}
