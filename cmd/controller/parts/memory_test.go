package parts

import (
	"math"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/manifests"
	"zonewise.dev/test/clitest"
)

// TestLimitMemory: the garbage collector keeps to the container's limit, unless GOMEMLIMIT says otherwise.
func TestLimitMemory(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	t.Setenv("GOMEMLIMIT", "")
	file := filepath.Join(t.TempDir(), "memory.max")
	for content, want := range map[string]int64{"max\n": before, "": before, "1073741820\n": 966367638} {
		debug.SetMemoryLimit(before)
		require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
		require.Equal(t, want, LimitMemory(file), content)
		require.Equal(t, want, debug.SetMemoryLimit(-1), content)
	}
	debug.SetMemoryLimit(before)
	require.Equal(t, before, LimitMemory(filepath.Join(t.TempDir(), "none")))
	t.Setenv("GOMEMLIMIT", "1GiB")
	require.Equal(t, before, LimitMemory(file), "what the runtime has read stays")
}

// TestTooLarge: a cluster is refused that the memory limit has no room for, in words that say what to do.
func TestTooLarge(t *testing.T) {
	s := snapshot.New(clitest.Now)
	for i := range 10_000 {
		s.Add(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: strconv.Itoa(i)}})
	}
	need := int64(bytesAtStart + 10_000*bytesPerPod)
	for limit, want := range map[int64]string{
		0: "", math.MaxInt64: "", need: "",
		100 << 20: "the controller may use 100Mi of memory, and needs " + mebibytes(need) + " for 10000 pods: raise the memory limit of its Deployment",
	} {
		require.Equal(t, want, (&Shared{MemoryLimit: limit}).TooLarge(s), limit)
	}
}

// TestManifestsMemory: the manifests' limit has room for the cluster that they and docs/operations.md say it is for,
// and half of it has not.
func TestManifestsMemory(t *testing.T) {
	limits := regexp.MustCompile(`1,000 nodes with 30 pods each:(?s:.*?)limits:\s+memory: (\S+)`)
	for _, file := range []string{"components/controller/deployment.yaml", "charts/zonewise/values.yaml"} {
		content, err := manifests.FS.ReadFile(file)
		require.NoError(t, err)
		found := limits.FindSubmatch(content)
		require.NotNil(t, found, file)
		quantity := resource.MustParse(string(found[1]))
		limit := quantity.Value() / 10 * 9 // what LimitMemory leaves
		require.Greater(t, limit, int64(bytesAtStart+30_000*bytesPerPod), file)
		require.Less(t, limit/2, int64(bytesAtStart+30_000*bytesPerPod), file)
	}
}
