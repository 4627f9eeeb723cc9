package parity

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// trial is a cycle in which pods are added and removed on a cloned state, as preemption does.
type trial struct {
	*Cycle
	state fwk.CycleState
	what  Recount
}

func newTrial(t testing.TB, plugin Plugin, lister fwk.SharedLister, pod *v1.Pod, what Recount) *trial {
	t.Helper()
	c, status, err := Start(t.Context(), plugin, lister, pod)
	require.NoError(t, err)
	require.True(t, status.IsSuccess() || status.IsSkip(), Describe(status))
	return &trial{Cycle: c, state: c.State.Clone(), what: Recount{Nodes: what.Nodes, Pods: slices.Clone(what.Pods)}}
}

func (tr *trial) nodeInfo(name string) fwk.NodeInfo {
	for _, n := range tr.Nodes {
		if n.Node().Name == name {
			return n
		}
	}
	return nil
}

func (tr *trial) add(t testing.TB, p *v1.Pod) {
	t.Helper()
	tr.what.Pods = append(tr.what.Pods, p)
	tr.step(t, tr.Plugin.PreFilterExtensions().AddPod, p)
}

func (tr *trial) remove(t testing.TB, p *v1.Pod) {
	t.Helper()
	tr.what.Pods = slices.DeleteFunc(tr.what.Pods, func(other *v1.Pod) bool { return other.UID == p.UID })
	tr.step(t, tr.Plugin.PreFilterExtensions().RemovePod, p)
}

func (tr *trial) step(t testing.TB, do func(ctx context.Context, state fwk.CycleState, pod *v1.Pod, info fwk.PodInfo, node fwk.NodeInfo) *fwk.Status, p *v1.Pod) {
	t.Helper()
	if tr.Skip {
		return
	}
	info, err := framework.NewPodInfo(p)
	require.NoError(t, err)
	status := do(t.Context(), tr.state, tr.Pod, info, tr.nodeInfo(p.Spec.NodeName))
	require.True(t, status.IsSuccess(), Describe(status))
}

// codes returns the code of each node on the changed state.
func (tr *trial) codes(t testing.TB) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, n := range tr.Nodes {
		out[n.Node().Name] = "Success"
		if !tr.Skip {
			out[n.Node().Name] = tr.Plugin.Filter(t.Context(), tr.state, tr.Pod, n).Code().String()
		}
	}
	return out
}

// expected returns the same by recount.
func (tr *trial) expected() map[string]string {
	out := map[string]string{}
	for name, verdict := range tr.what.Hard(tr.Pod) {
		out[name] = string(verdict)
	}
	return out
}

// TestAddPodRemovePodEqualRecount tries random additions and removals, of pods that run and of new ones,
// on every cluster, and checks each step against a recount and that the original state stays as it was.
func TestAddPodRemovePodEqualRecount(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 11)) //nolint:gosec // a fixed seed makes failures repeat
	changedVerdicts := 0
	for clusterName, cluster := range clusters() {
		if len(cluster.nodes) == 0 {
			continue
		}
		pair, what := setUp(t, Options{}, cluster.nodes, cluster.pods)
		for podName, pod := range incomingPods() {
			tr := newTrial(t, pair.Ours, pair.Lister, pod, what)
			before := tr.codes(t)
			var trace []string
			for i := range 12 {
				if len(tr.what.Pods) > 0 && rng.IntN(2) == 0 {
					victim := tr.what.Pods[rng.IntN(len(tr.what.Pods))]
					trace = append(trace, fmt.Sprintf("remove %s from %s", victim.Name, victim.Spec.NodeName))
					tr.remove(t, victim)
				} else {
					labels := []string{"foo", "foo bar", "bar", "foo hash=1", "foo ns:ns1"}[rng.IntN(5)]
					p := incoming(labels)
					p.Name = fmt.Sprintf("added-%d", i)
					p.UID = types.UID(p.Name)
					p.Spec.NodeName = what.Nodes[rng.IntN(len(what.Nodes))].Name
					trace = append(trace, fmt.Sprintf("add %q to %s", labels, p.Spec.NodeName))
					tr.add(t, p)
				}
				got := tr.codes(t)
				require.Equal(t, tr.expected(), got, "%s/%s after %v", clusterName, podName, trace)
				if !maps.Equal(got, before) {
					changedVerdicts++
				}
			}
			tr.state = tr.Cycle.State
			require.Equal(t, before, tr.codes(t), "%s/%s: the state that was cloned has changed", clusterName, podName)
		}
	}
	require.Greater(t, changedVerdicts, 1000, "how often a step changed a verdict")
}

// TestPreemptionEqualsInTree removes all pods of one node, as preemption's dry run does, and adds them
// back one by one. No pod is terminating, so that the in-tree plugin is right too.
func TestPreemptionEqualsInTree(t *testing.T) {
	for clusterName, cluster := range clusters() {
		if clusterName == "terminating" {
			continue
		}
		pair, what := setUp(t, Options{}, cluster.nodes, cluster.pods)
		for podName, pod := range incomingPods() {
			for _, n := range what.Nodes {
				var victims []*v1.Pod
				for _, p := range what.Pods {
					if p.Spec.NodeName == n.Name {
						victims = append(victims, p)
					}
				}
				theirs := newTrial(t, pair.InTree, pair.Lister, pod, what)
				ours := newTrial(t, pair.Ours, pair.Lister, pod, what)
				require.Equal(t, theirs.Skip, ours.Skip)
				for _, p := range victims {
					theirs.remove(t, p)
					ours.remove(t, p)
					require.Equal(t, theirs.codes(t), ours.codes(t), "%s/%s without %s", clusterName, podName, p.Name)
				}
				for _, p := range victims {
					theirs.add(t, p)
					ours.add(t, p)
					require.Equal(t, theirs.codes(t), ours.codes(t), "%s/%s with %s again", clusterName, podName, p.Name)
				}
			}
		}
	}
}
