package command

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/internal/program"
	"zonewise.dev/test/clitest"
)

// TestPodGroupsOfBothAPIs: where two have one name, explain asks which is meant.
func TestPodGroupsOfBothAPIs(t *testing.T) {
	c := clitest.Story()
	c.NativeGang("train", 2, "6", "", "")
	c.NativeGang("only", 1, "100", "")
	file := filepath.Join(t.TempDir(), "cluster.json.gz")
	require.NoError(t, snapshot.Save(file, c.Snapshot))
	for _, tc := range []struct {
		subject string
		code    int
		says    string
	}{
		{"podgroup/train", program.Misused, "there are two PodGroups train in namespace shop: want podgroup.scheduling.x-k8s.io/train or podgroup.scheduling.k8s.io/train"},
		{"podgroup.scheduling.k8s.io/train", program.OK, "Gang shop/train (native)"},
		{"podgroup.scheduling.x-k8s.io/train", program.OK, "Gang shop/train\n"},
		{"podgroup/only", program.OK, "Gang shop/only (native)"},
		{"podgroup.scheduling.x-k8s.io/only", program.Failed, "there is no PodGroup only in namespace shop"},
	} {
		code, out, errs := zonewise(t.Context(), "explain", tc.subject, "-n", "shop", "--snapshot", file)
		require.Equal(t, tc.code, code, errs)
		require.Contains(t, out+errs, tc.says)
	}
	_, out, _ := zonewise(t.Context(), "status", "-n", "shop", "--snapshot", file)
	require.Contains(t, out, "shop/only (native)")
}
