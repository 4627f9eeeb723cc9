package simulate

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/sim/kinds"
	"zonewise.dev/test/clitest"
	"zonewise.dev/test/featuregates"
)

func TestMain(m *testing.M) { featuregates.Run(m) }

// TestNativeGangsAreWholeOrWait: after the loss of a zone, a native gang is whole again, or its promise is broken.
func TestNativeGangsAreWholeOrWait(t *testing.T) {
	c := zones("9")
	c.NativeGang("train", 4, "4", "node-a", "node-a", "node-b", "node-c")
	c.NativeGang("basic", 0, "1m", "node-a")
	r := run(t, c, &Scenario{Zones: []string{"a"}})
	require.Zero(t, r.Pending)
	require.Equal(t, []Promise{gang("shop/train (native)", 4, 4, 4)}, r.Promises)

	c.Pod("big", "node-b", clitest.Plain("4", "1Gi"), nil)
	r = run(t, c, &Scenario{Zones: []string{"a"}})
	require.Equal(t, []Promise{gang("shop/train (native)", 4, 4, 2)}, r.Promises)
	require.Equal(t, 2, r.Pending, "the member that fits gives its place back")
	require.NotEmpty(t, r.Workloads[0].Why)
}

// gangJob is a Job whose controller makes a gang of it.
const gangJob = `
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  parallelism: 3
  completions: 3
  scheduling: {schedulingPolicy: {gang: {}}}
  template:
    metadata: {labels: {app: train}}
    spec:
      restartPolicy: Never
      priorityClassName: high
      containers: [{name: c, image: i, resources: {requests: {cpu: "4"}}}]
`

// TestJobsWithScheduling: a file's Job with spec.scheduling comes with the PodGroup that its controller would make.
func TestJobsWithScheduling(t *testing.T) {
	w := parse(t, gangJob, 1)
	require.Empty(t, w.LeftOut)
	require.Len(t, w.Pods, 3)
	group, ok := w.others[0].(*kinds.NativePodGroup)
	require.True(t, ok)
	require.EqualValues(t, 3, group.Spec.SchedulingPolicy.Gang.MinCount, "the parallelism")
	require.EqualValues(t, 1000, *group.Spec.Priority, "that of its class")
	for _, pod := range w.Pods {
		require.Equal(t, group.Name, *pod.Spec.SchedulingGroup.PodGroupName)
	}
	r := run(t, zones("4"), &Scenario{Added: w})
	require.Equal(t, []Promise{gang("shop/train-simulated (native)", 3, 0, 3)}, r.Promises)
	require.Equal(t, 3, r.Placed)

	r = run(t, zones("4"), &Scenario{Added: parse(t, strings.Replace(gangJob, "parallelism: 3\n  completions: 3", "parallelism: 4\n  completions: 4", 1), 1)})
	require.Equal(t, []Promise{gang("shop/train-simulated (native)", 4, 0, 0)}, r.Promises)
	require.Equal(t, 4, r.Pending, "all or none")

	r = run(t, zones("8"), &Scenario{Added: parse(t, gangJob, 2)})
	require.Equal(t, []Promise{gang("shop/train-simulated-1 (native)", 3, 0, 3), gang("shop/train-simulated-2 (native)", 3, 0, 3)}, r.Promises)

	w = parse(t, strings.Replace(gangJob, "gang: {}", "basic: {}", 1), 1)
	require.Nil(t, w.Pods[0].Spec.SchedulingGroup, "a basic group changes nothing")
}

// TestNativePodGroupsOfAFile: PodGroups and the pods that name them, and what becomes of both where the cluster has no
// such API.
func TestNativePodGroupsOfAFile(t *testing.T) {
	const manifests = `
apiVersion: scheduling.k8s.io/v1beta1
kind: PodGroup
metadata: {name: pair}
spec: {schedulingPolicy: {gang: {minCount: 2}}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: pair}
spec:
  parallelism: 2
  scheduling: {schedulingPolicy: {gang: {}}}
  template:
    spec:
      restartPolicy: Never
      schedulingGroup: {podGroupName: pair}
      containers: [{name: c, image: i, resources: {requests: {cpu: "3"}}}]
`
	r := run(t, zones("4"), &Scenario{Added: parse(t, manifests, 1)})
	require.Equal(t, []Promise{gang("shop/pair (native)", 2, 0, 2)}, r.Promises)

	c := zones("4")
	c.Missing = []snapshot.Missing{{Resource: kinds.NativePodGroups, Reason: snapshot.NotInstalled}}
	w := parseFor(t, c, manifests, 1)
	require.Equal(t, []string{"PodGroup shop/pair is left out: the cluster has no PodGroups of scheduling.k8s.io, or they could not be read"}, w.LeftOut)
	r = run(t, c, &Scenario{Added: w})
	require.Equal(t, 2, r.Placed)
	require.Empty(t, r.Promises)
	require.Equal(t, corev1.PodPhase(""), w.Pods[0].Status.Phase, "the file's pods stay as they were")
}
