package simulate

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"zonewise.dev/cmd/zonewise/show"
	"zonewise.dev/internal/pods"
	"zonewise.dev/sim"
)

// drainNodes drains nodes one after the other, as kubectl drain does with --ignore-daemonsets, --delete-emptydir-data
// and --force: it cordons a node and evicts its pods, and again those that a budget keeps, until none is left or none
// goes any more.
func (p *scenarioRun) drainNodes(names []string) error {
	for _, name := range names {
		node, ok := sim.Get[*corev1.Node](p.sim, "", name)
		if !ok {
			return fmt.Errorf("there is no node %q", name)
		}
		cordoned := node.DeepCopy()
		cordoned.Spec.Unschedulable = true
		if err := p.sim.Put(cordoned); err != nil {
			return err
		}
		before, evicted, refusal := len(p.podsToDrain(name)), 0, ""
		for progress := true; progress; {
			progress, refusal = false, ""
			for _, pod := range p.podsToDrain(name) {
				reason := p.sim.WhyNotReplaced(pod)
				switch err := p.sim.Evict(pod); {
				case err == nil:
					progress = true
					evicted++
					if reason != "" {
						p.result.Orphans++
						p.result.addNotReplaced(reason)
					}
				case refusal == "":
					refusal = pod.Namespace + "/" + pod.Name + ": " + evictionRefusal(err)
				}
			}
			if err := p.sim.Run(p.ctx); err != nil {
				return err
			}
		}
		p.drained += evicted
		p.result.DrainedNodes++
		p.result.Displaced += evicted
		stay := before - evicted
		promise := Promise{Kind: FailDrain, Name: name, Before: int64(before), After: int64(stay), Broken: stay > 0, Words: show.Plural(evicted, "pod") + " evicted"}
		if stay > 0 {
			promise.Words = fmt.Sprintf("%d of %s stay: %s", stay, show.Plural(before, "pod"), refusal)
		}
		p.addPromise(promise)
	}
	return nil
}

// podsToDrain returns the pods of a node that are evicted: all but those of DaemonSets, static ones, and those that are
// ending.
func (p *scenarioRun) podsToDrain(node string) []*corev1.Pod {
	return slices.DeleteFunc(sim.List[*corev1.Pod](p.sim), func(pod *corev1.Pod) bool {
		return pod.Spec.NodeName != node || !pods.Live(pod) || sim.NodeBound(pod)
	})
}

// evictionRefusal is why the API server refuses an eviction: what its budget says, or else the error.
func evictionRefusal(err error) string {
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil {
		at := slices.IndexFunc(status.Status().Details.Causes, func(c metav1.StatusCause) bool { return c.Type == policyv1.DisruptionBudgetCause })
		if at >= 0 {
			return status.Status().Details.Causes[at].Message
		}
	}
	return err.Error()
}
