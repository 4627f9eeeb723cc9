package status_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/cmd/zonewise/show"
	"zonewise.dev/cmd/zonewise/status"
	"zonewise.dev/sim/kinds"
	"zonewise.dev/test/clitest"
)

// TestStatesOfNativeGangs: as those of other gangs, and why one waits that the scheduler has not tried is in a
// condition of its PodGroup.
func TestStatesOfNativeGangs(t *testing.T) {
	condition := func(kind string, s metav1.ConditionStatus) metav1.Condition {
		return metav1.Condition{Type: kind, Status: s, Message: "says " + kind}
	}
	for _, tc := range []struct {
		name           string
		min            int32
		nodes          []string
		conditions     []metav1.Condition
		state, message string
	}{
		{"whole", 2, []string{"node", "node"}, nil, status.OK, ""},
		{"bound in part", 2, []string{"node", ""}, nil, status.Partial, ""},
		{"waits for members", 3, []string{""}, nil, status.Waiting, "1 of 3 members exist"},
		{"does not fit", 2, []string{"", ""}, []metav1.Condition{
			condition("PodGroupInitiallyScheduled", metav1.ConditionFalse), condition("zonewise.dev/Fits", metav1.ConditionFalse),
		}, status.Waiting, "says zonewise.dev/Fits"},
		{"was rolled back", 2, []string{"", ""}, []metav1.Condition{
			condition("PodGroupInitiallyScheduled", metav1.ConditionTrue), condition("zonewise.dev/Released", metav1.ConditionFalse),
		}, status.Waiting, "says zonewise.dev/Released"},
		{"finished", 2, nil, []metav1.Condition{condition("PodGroupInitiallyScheduled", metav1.ConditionTrue)}, status.OK, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := clitest.New()
			c.Node("node", "a", "8", "8Gi")
			c.NativeGang("gang", tc.min, "1", tc.nodes...).Status.Conditions = tc.conditions
			gangs := build(c, clitest.Namespace).Gangs
			require.Len(t, gangs, 1)
			require.True(t, gangs[0].Native)
			require.Equal(t, []string{tc.state, tc.message}, []string{gangs[0].State, gangs[0].Message})
		})
	}
}

// TestGangsOfBothAPIs may have one name. Groups with a basic policy are no gangs, and one that could not be read is not
// thought to be missing.
func TestGangsOfBothAPIs(t *testing.T) {
	c := clitest.New()
	c.Node("node", "a", "8", "8Gi")
	c.Gang("train", 1)
	c.Pod("old", "node", corev1.PodSpec{}, map[string]string{"scheduling.x-k8s.io/pod-group": "train"})
	c.NativeGang("train", 3, "1", "node")
	c.NativeGang("basic", 0, "1", "node", "")
	report := build(c, "")
	require.Len(t, report.Gangs, 2)
	shown := text(t, report, show.Style{})
	require.Regexp(t, `(?m)^ *shop/train +OK +1 +1 +1`, shown)
	require.Regexp(t, `(?m)^ *shop/train \(native\) +Partial +1 +3 +1`, shown)

	unread := clitest.New()
	unread.Add(c.Pods()[1])
	unread.Missing = []snapshot.Missing{{Resource: kinds.NativePodGroups, Reason: snapshot.Forbidden}}
	require.Equal(t, "its PodGroup could not be read", build(unread, "").Gangs[0].Message)
}
