package sim

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/podtopologyspread"
)

// SpreadRefusal is the reason with which a node is refused that spread constraints do not allow.
const SpreadRefusal = podtopologyspread.ErrReasonConstraintsNotMatch

// Evaluation is what the scheduler's plugins say about a pod now.
type Evaluation struct {
	// Gates keep the pod out of the queue.
	Gates []Refusal
	// All is a refusal before any node is looked at.
	All *Refusal
	// Nodes has every node, sorted by name. If All is not nil, each node has that refusal.
	Nodes []NodeEvaluation
}

// NodeEvaluation is what the plugins say about the pod on one node.
type NodeEvaluation struct {
	Node *v1.Node
	// Refusal is nil when all of them accept it.
	Refusal *Refusal
	// Score is what EvaluateBound adds for a node that would take the pod: the sum of Scores, by which the scheduler
	// chooses. These are each plugin's points with its weight.
	Score  int64
	Scores map[string]int64
}

// alone are the filters by which a node may be refused whatever else is in the cluster.
var alone = []string{
	names.NodeAffinity, names.NodeName, names.NodeResourcesFit, names.NodeUnschedulable, names.TaintToleration, names.VolumeBinding, names.VolumeZone,
}

// RefusesEmpty reports whether the node would refuse the pod also if it were empty.
func (n *NodeEvaluation) RefusesEmpty() bool {
	return n.Refusal != nil && n.Refusal.Unresolvable && slices.Contains(alone, n.Refusal.Plugin)
}

// Refusal is a plugin's answer.
type Refusal struct {
	// Plugin is empty if the framework itself refuses.
	Plugin  string
	Reasons []string
	// Error: the plugin has failed. Unresolvable: the pod would not fit even without other pods.
	Error, Unresolvable bool
}

// Message are the reasons in one line.
func (r *Refusal) Message() string { return strings.Join(r.Reasons, ", ") }

func refusalOf(status *fwk.Status) *Refusal {
	if status.IsSuccess() {
		return nil
	}
	reasons := slices.Clone(status.Reasons())
	if len(reasons) == 0 {
		reasons = []string{status.Code().String()}
	}
	return &Refusal{
		Plugin: status.Plugin(), Reasons: reasons,
		Error: status.Code() == fwk.Error, Unresolvable: status.Code() == fwk.UnschedulableAndUnresolvable,
	}
}

// FittingNodes returns the nodes that would take the pod.
func (a *Evaluation) FittingNodes() []*v1.Node {
	var out []*v1.Node
	for i := range a.Nodes {
		if a.Nodes[i].Refusal == nil {
			out = append(out, a.Nodes[i].Node)
		}
	}
	return out
}

// NodesIfEmpty returns the nodes that would take the pod now, or if they were empty; see RefusesEmpty.
func (a *Evaluation) NodesIfEmpty() []*v1.Node {
	var out []*v1.Node
	for i := range a.Nodes {
		if !a.Nodes[i].RefusesEmpty() {
			out = append(out, a.Nodes[i].Node)
		}
	}
	return out
}

// Evaluate runs the filters of the pod's profile for every node, with the pods that are nominated to them, as in a
// scheduling cycle. No pod is placed or preempted. The pod need not exist in the copy; a bound pod is evaluated as if
// another one like it were to be placed. It is an error if the pod has no profile or an extender fails; a failing
// plugin is a refusal.
func (s *Sim) Evaluate(ctx context.Context, pod *v1.Pod) (*Evaluation, error) {
	return s.evaluate(ctx, pod, false)
}

// EvaluateBound says where a bound pod of the copy would go if it were placed now: the plugins filter the nodes for a
// new pod like it on the copy without it, and score the nodes that would take it. The pod gets new volumes and devices
// of its own. The copy is as before then, except for its time; an earlier Mark is forgotten.
func (s *Sim) EvaluateBound(ctx context.Context, pod *v1.Pod) (*Evaluation, error) {
	s.Mark()
	defer s.Rewind()
	if now, ok := get[*v1.Pod](s.store, keyOf(pod)); ok {
		s.store.remove(kindFor[*v1.Pod](s.store), keyOf(pod))
		s.countHealthy(now, -1)
		s.releaseClaims(now)
	}
	again := s.newPodLike(pod)
	s.makeClaims(again)
	s.noteChange()
	if err := s.PassTime(ctx, holdTime); err != nil {
		return nil, err
	}
	return s.evaluate(ctx, again, true)
}

// holdTime is how long plugins take to hold again what a pod has given back.
const holdTime = time.Second

func (s *Sim) evaluate(ctx context.Context, pod *v1.Pod, scored bool) (*Evaluation, error) {
	f := s.scheduler.Profiles[pod.Spec.SchedulerName]
	if f == nil {
		return nil, fmt.Errorf("no profile of the configuration has the scheduler name %q", pod.Spec.SchedulerName)
	}
	if err := s.settle(ctx); err != nil {
		return nil, err
	}
	out := &Evaluation{}
	for _, plugin := range f.PreEnqueuePlugins() {
		if status := plugin.PreEnqueue(ctx, pod); !status.IsSuccess() {
			out.Gates = append(out.Gates, *refusalOf(status.WithPlugin(plugin.Name())))
		}
	}
	if err := s.scheduler.Cache.UpdateSnapshot(klog.FromContext(s.ctx), s.snapshot); err != nil {
		return nil, err
	}
	nodes, err := s.snapshot.List()
	if err != nil {
		return nil, err
	}
	state := framework.NewCycleState()
	result, status, limiting := f.RunPreFilterPlugins(ctx, state, pod)
	out.All = refusalOf(status)
	out.Nodes = make([]NodeEvaluation, len(nodes))
	f.Parallelizer().Until(ctx, len(nodes), func(i int) {
		a := &out.Nodes[i]
		a.Node = nodes[i].Node()
		switch {
		case out.All != nil:
			a.Refusal = out.All
		case !result.AllNodes() && !result.NodeNames.Has(a.Node.Name):
			plugins := limiting.UnsortedList()
			slices.Sort(plugins)
			a.Refusal = &Refusal{
				Plugin: strings.Join(plugins, ", "), Unresolvable: true,
				Reasons: []string{fmt.Sprintf("node(s) didn't satisfy plugin(s) %v", plugins)}, // the scheduler's words
			}
		default:
			a.Refusal = refusalOf(f.RunFilterPluginsWithNominatedPods(ctx, state, pod, nodes[i]))
		}
	}, "Ask")
	if err := runExtenders(f, pod, nodes, out); err != nil {
		return nil, err
	}
	if scored {
		if err := scoreNodes(ctx, f, state, pod, nodes, out); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(out.Nodes, func(a, b NodeEvaluation) int { return strings.Compare(a.Node.Name, b.Node.Name) })
	return out, ctx.Err()
}

// scoreNodes has the plugins score the nodes that would take a pod. The answer's nodes are in the order of the
// snapshot.
func scoreNodes(ctx context.Context, f framework.Framework, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo, out *Evaluation) error {
	var fit []fwk.NodeInfo
	answers := map[string]*NodeEvaluation{}
	for i := range nodes {
		if out.Nodes[i].Refusal == nil {
			fit = append(fit, nodes[i])
			answers[nodes[i].Node().Name] = &out.Nodes[i]
		}
	}
	if len(fit) == 0 {
		return nil
	}
	if status := f.RunPreScorePlugins(ctx, state, pod, fit); !status.IsSuccess() {
		return status.AsError()
	}
	scores, status := f.RunScorePlugins(ctx, state, pod, fit)
	if !status.IsSuccess() {
		return status.AsError()
	}
	for _, node := range scores {
		a := answers[node.Name]
		a.Score, a.Scores = node.TotalScore, make(map[string]int64, len(node.Scores))
		for _, plugin := range node.Scores {
			a.Scores[plugin.Name] = plugin.Score
		}
	}
	return nil
}

// runExtenders runs the extenders of the configuration, one after the other, for the remaining nodes.
func runExtenders(f framework.Framework, pod *v1.Pod, nodes []fwk.NodeInfo, out *Evaluation) error {
	for _, extender := range f.Extenders() {
		if !extender.IsFilter() || !extender.IsInterested(pod) {
			continue
		}
		var fit []fwk.NodeInfo
		for i := range nodes {
			if out.Nodes[i].Refusal == nil {
				fit = append(fit, nodes[i])
			}
		}
		if len(fit) == 0 {
			return nil
		}
		_, failed, unresolvable, err := extender.Filter(pod, fit)
		if err != nil {
			if extender.IsIgnorable() {
				continue
			}
			return fmt.Errorf("extender %s: %w", extender.Name(), err)
		}
		for i := range out.Nodes {
			a := &out.Nodes[i]
			if reason, ok := failed[a.Node.Name]; ok {
				a.Refusal = &Refusal{Plugin: extender.Name(), Reasons: []string{reason}}
			}
			if reason, ok := unresolvable[a.Node.Name]; ok {
				a.Refusal = &Refusal{Plugin: extender.Name(), Reasons: []string{reason}, Unresolvable: true}
			}
		}
	}
	return nil
}
