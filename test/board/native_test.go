package board

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/plugins/permitgate/native"
	"zonewise.dev/test/clitest"
	"zonewise.dev/test/internal/apiserver"
)

// TestNativeGangsOnTheBoard: the page shows them as other gangs, marked, also beside one of the other API that has the
// same name: why one waits, and how to ask for more.
func TestNativeGangsOnTheBoard(t *testing.T) {
	c := clitest.Story()
	c.NativeGang("whole", 1, "1", "node-b1")
	c.NativeGang("train", 2, "100", "", "").Status.Conditions = []metav1.Condition{{
		Type: native.ConditionFits, Status: metav1.ConditionFalse, Reason: "NoRoom", Message: "the cluster has no room for 2 members at once: short of cpu",
	}}
	dir := t.TempDir()
	file, page := filepath.Join(dir, "cluster.json"), filepath.Join(dir, "board.html")
	require.NoError(t, snapshot.Save(file, c.Snapshot))
	serveNothing(t, apiserver.Zonewise(t), "board", "--snapshot", file, "--output", page)
	p := openTab(t, 1280, 900)
	p.open("file://" + page)
	text := p.text("#s-gangs [data-key='shop/train (native)']")
	require.Contains(t, text, "Waiting")
	require.Contains(t, text, "2 more to be bound at once. the cluster has no room for 2 members at once: short of cpu")
	require.Contains(t, text, "explain podgroup.scheduling.k8s.io/train -n shop")
	require.Contains(t, p.text("#s-gangs [data-key='shop/train']"), "4 more to be bound at once.")
	require.Contains(t, p.text("#s-gangs"), "shop/whole (native)")
	p.requireNoFaults()
}
