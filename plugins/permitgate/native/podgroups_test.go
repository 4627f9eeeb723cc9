package native

import (
	"testing"

	"github.com/stretchr/testify/require"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/permitgate/podgroup"
)

// TestLatestViewOfAPodGroup: conditions are not sent twice until the informer shows the version that has them, whatever
// another client has written meanwhile. A patch says nothing of a new PodGroup of the same name.
func TestLatestViewOfAPodGroup(t *testing.T) {
	view := func(uid, version string) *podgroup.Group {
		return Read(&schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), ResourceVersion: version}}, false)
	}
	patched := view("uid", "1212")
	for version, behind := range map[string]bool{"1199": true, "1207": true, "1212": false, "1215": false} {
		shown := view("uid", version)
		want := shown
		if behind {
			want = patched
		}
		require.Same(t, want, Latest(shown, patched), "version %s", version)
	}
	successor := view("another", "1199")
	require.Same(t, successor, Latest(successor, patched))
	require.Same(t, successor, Latest(successor, nil))
}
