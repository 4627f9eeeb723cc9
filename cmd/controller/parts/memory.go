package parts

import (
	"fmt"
	"math"
	"os"
	"runtime/debug"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"zonewise.dev/cluster/snapshot"
)

const (
	// bytesPerPod is in what the controller can work on a copy of a cluster, for each of its pods: three times what is
	// live in BenchmarkCertify. The garbage collector takes a fifth of the CPU then, a seventh without a limit, and
	// half with half as much.
	bytesPerPod = 12 << 10
	// bytesAtStart is what the process has without a cluster.
	bytesAtStart = 64 << 20
)

// LimitMemory makes the garbage collector keep to nine tenths of the memory limit in a file of a cgroup, unless
// GOMEMLIMIT says to what, and returns the limit in bytes, math.MaxInt64 if there is none.
func LimitMemory(file string) int64 {
	if os.Getenv("GOMEMLIMIT") == "" {
		text, _ := os.ReadFile(file) // there is none outside of a container
		if limit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil {
			debug.SetMemoryLimit(limit / 10 * 9)
		}
	}
	return debug.SetMemoryLimit(-1)
}

// TooLarge says in a line that the cluster does not fit into the memory that the process may use; it is empty if it
// does. A part that copies the cluster asks first: to be killed at the limit again and again would answer nothing.
func (s *Shared) TooLarge(cluster *snapshot.Snapshot) string {
	pods := len(snapshot.List[*v1.Pod](cluster))
	need := int64(bytesAtStart + pods*bytesPerPod)
	if s.MemoryLimit <= 0 || s.MemoryLimit == math.MaxInt64 || need <= s.MemoryLimit {
		return ""
	}
	return fmt.Sprintf("the controller may use %s of memory, and needs %s for %d pods: raise the memory limit of its Deployment",
		mebibytes(s.MemoryLimit), mebibytes(need), pods)
}

func mebibytes(bytes int64) string {
	return resource.NewQuantity((bytes+1<<20-1)>>20<<20, resource.BinarySI).String()
}
