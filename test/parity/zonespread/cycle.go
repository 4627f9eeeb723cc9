package parity

import (
	"context"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"zonewise.dev/test/schedulertest"
)

// Outcome is all that a plugin says of one pod in one cycle.
type Outcome struct {
	PreFilter string
	Filter    map[string]string // by node: code and reasons
	PreScore  string
	Scores    map[string]int64 // by node: normalized
}

// Cycle is a scheduling cycle of one plugin for one pod.
type Cycle struct {
	Plugin Plugin
	Pod    *v1.Pod
	State  fwk.CycleState
	Nodes  []fwk.NodeInfo
	// Skip is whether PreFilter asked to skip Filter.
	Skip bool
}

// Describe renders a status as code and reasons.
func Describe(s *fwk.Status) string {
	if s.IsSuccess() {
		return "Success"
	}
	return fmt.Sprintf("%s %s", s.Code(), strings.Join(s.Reasons(), "; "))
}

// PodGroupCycle returns the state of a pod's cycle within the cycle of its pod group.
func PodGroupCycle() fwk.CycleState { return schedulertest.GroupCycle() }

// Start runs PreFilter in a cycle with a new state.
func Start(ctx context.Context, plugin Plugin, lister fwk.SharedLister, pod *v1.Pod) (*Cycle, *fwk.Status, error) {
	return StartIn(ctx, framework.NewCycleState(), plugin, lister, pod)
}

// StartIn runs PreFilter in a cycle with the given state.
func StartIn(ctx context.Context, state fwk.CycleState, plugin Plugin, lister fwk.SharedLister, pod *v1.Pod) (*Cycle, *fwk.Status, error) {
	nodes, err := lister.NodeInfos().List()
	if err != nil {
		return nil, nil, err
	}
	c := &Cycle{Plugin: plugin, Pod: pod, State: state, Nodes: nodes}
	result, status := plugin.PreFilter(ctx, c.State, pod, nodes)
	if !result.AllNodes() {
		return nil, nil, fmt.Errorf("%s: PreFilter narrowed the nodes to %v", plugin.Name(), result.NodeNames)
	}
	c.Skip = status.IsSkip()
	return c, status, nil
}

// Filter runs Filter on every node, on a given state of the cycle.
func (c *Cycle) Filter(ctx context.Context, state fwk.CycleState) map[string]string {
	out := make(map[string]string, len(c.Nodes))
	for _, n := range c.Nodes {
		if c.Skip {
			out[n.Node().Name] = "Success"
			continue
		}
		out[n.Node().Name] = Describe(c.Plugin.Filter(ctx, state, c.Pod, n))
	}
	return out
}

// Score runs PreScore, Score and NormalizeScore on the nodes for which keep holds.
func (c *Cycle) Score(ctx context.Context, keep func(name string) bool) (preScore string, scores map[string]int64, err error) {
	var feasible []fwk.NodeInfo
	for _, n := range c.Nodes {
		if keep(n.Node().Name) {
			feasible = append(feasible, n)
		}
	}
	status := c.Plugin.PreScore(ctx, c.State, c.Pod, feasible)
	preScore = Describe(status)
	if !status.IsSuccess() {
		return preScore, nil, nil
	}
	list := make(fwk.NodeScoreList, len(feasible))
	for i, n := range feasible {
		raw, status := c.Plugin.Score(ctx, c.State, c.Pod, n)
		if !status.IsSuccess() {
			return preScore, nil, status.AsError()
		}
		list[i] = fwk.NodeScore{Name: n.Node().Name, Score: raw}
	}
	if status := c.Plugin.ScoreExtensions().NormalizeScore(ctx, c.State, c.Pod, list); !status.IsSuccess() {
		return preScore, nil, status.AsError()
	}
	scores = make(map[string]int64, len(list))
	for _, s := range list {
		scores[s.Name] = s.Score
	}
	return preScore, scores, nil
}

// Run takes a plugin through a whole cycle. The nodes that are scored are those for which keep holds,
// or those that passed Filter if keep is nil.
func Run(ctx context.Context, plugin Plugin, lister fwk.SharedLister, pod *v1.Pod, keep func(name string) bool) (Outcome, error) {
	return RunIn(ctx, framework.NewCycleState(), plugin, lister, pod, keep)
}

// RunIn is Run in a cycle with the given state.
func RunIn(ctx context.Context, state fwk.CycleState, plugin Plugin, lister fwk.SharedLister, pod *v1.Pod, keep func(name string) bool) (Outcome, error) {
	var out Outcome
	c, status, err := StartIn(ctx, state, plugin, lister, pod)
	if err != nil {
		return out, err
	}
	out.PreFilter = Describe(status)
	if !status.IsSuccess() && !status.IsSkip() {
		return out, nil
	}
	out.Filter = c.Filter(ctx, c.State)
	if keep == nil {
		keep = func(name string) bool { return out.Filter[name] == "Success" }
	}
	out.PreScore, out.Scores, err = c.Score(ctx, keep)
	return out, err
}
