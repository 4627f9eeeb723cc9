package integration

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
)

// nodeAccount is what one side says of a node.
type nodeAccount struct {
	MilliCPU, Memory, AllocatableMilliCPU, AllocatableMemory int64
	Pods                                                     []types.UID // sorted
}

// account is what one side says of all nodes: the API server, a ledger or a scheduler's cache. Two that
// agree are equal.
type account map[string]nodeAccount

func (a account) sorted() account {
	for _, n := range a {
		slices.Sort(n.Pods)
	}
	return a
}

// apiAccount adds up what the API server has.
func (w *world) apiAccount() account {
	w.t.Helper()
	nodes, pods := &v1.NodeList{}, &v1.PodList{}
	require.NoError(w.t, w.cp.client.List(w.ctx, nodes))
	require.NoError(w.t, w.cp.client.List(w.ctx, pods))
	a := account{}
	for _, node := range nodes.Items {
		a[node.Name] = nodeAccount{
			AllocatableMilliCPU: node.Status.Allocatable.Cpu().MilliValue(),
			AllocatableMemory:   node.Status.Allocatable.Memory().Value(),
		}
	}
	for _, pod := range pods.Items {
		if pod.Spec.NodeName == "" || pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed {
			continue
		}
		n := a[pod.Spec.NodeName]
		requests := resource.PodRequests(&pod, resource.PodResourcesOptions{})
		n.MilliCPU += requests.Cpu().MilliValue()
		n.Memory += requests.Memory().Value()
		n.Pods = append(n.Pods, pod.UID)
		a[pod.Spec.NodeName] = n
	}
	return a.sorted()
}

// ledgerAccount is the ledger's side. Assumed pods count, ghosts too.
func (s *runningScheduler) ledgerAccount() account {
	a := account{}
	for _, node := range s.ledger().Dump().Nodes {
		n := nodeAccount{
			MilliCPU: node.Requested.MilliCPU, Memory: node.Requested.Memory,
			AllocatableMilliCPU: node.Allocatable.MilliCPU, AllocatableMemory: node.Allocatable.Memory,
		}
		for _, pod := range node.Pods {
			n.Pods = append(n.Pods, pod.Pod.UID)
		}
		a[node.Name] = n
	}
	return a.sorted()
}

// cacheAccount is the side of the scheduler's own cache.
func (s *runningScheduler) cacheAccount() account {
	a := account{}
	for name, info := range s.sched.Cache.Dump().Nodes {
		n := nodeAccount{
			MilliCPU: info.Requested.MilliCPU, Memory: info.Requested.Memory,
			AllocatableMilliCPU: info.Allocatable.MilliCPU, AllocatableMemory: info.Allocatable.Memory,
		}
		for _, pod := range info.Pods {
			n.Pods = append(n.Pods, pod.GetPod().UID)
		}
		a[name] = n
	}
	return a.sorted()
}

// assertInvariants checks what must be true at the end of every step of every test:
//
//   - no pod stays assumed, and once events have settled each ledger equals the scheduler's own cache and
//     the API server,
//   - a gang is bound whole or not at all,
//   - the scheduler was allowed all that it tried.
func (w *world) assertInvariants() {
	w.t.Helper()
	for _, s := range w.schedulers {
		require.Empty(w.t, s.log.lines("is forbidden: User"), "what the roles of manifests/rbac do not allow")
		if s.ledger() == nil {
			continue
		}
		w.eventually("no pod is assumed, and ledger, scheduler and API server agree", func() (bool, string) {
			if stats := s.ledger().Stats(); stats.AssumedPods > 0 {
				return false, fmt.Sprintf("%d pods are assumed: %v", stats.AssumedPods, s.assumed())
			}
			api, own, cache := w.apiAccount(), s.ledgerAccount(), s.cacheAccount()
			if diff := cmp.Diff(api, own); diff != "" {
				return false, "the ledger (+) differs from the API server (-):\n" + diff
			}
			if diff := cmp.Diff(cache, own); diff != "" {
				return false, "the ledger (+) differs from the scheduler's cache (-):\n" + diff
			}
			return true, ""
		})
	}
	require.Empty(w.t, w.partialGangs(), "gangs that are bound in part")
}

// assumed names the pods that are assumed.
func (s *runningScheduler) assumed() []string {
	var names []string
	for _, pod := range s.ledger().Dump().Pods() {
		if s.ledger().IsAssumedPod(pod.Pod.UID) {
			names = append(names, pod.Pod.Name)
		}
	}
	slices.Sort(names)
	return names
}

// partialGangs lists the gangs of which some members are bound and too few.
func (w *world) partialGangs() []string {
	w.t.Helper()
	groups := &schedulingv1alpha1.PodGroupList{}
	if err := w.cp.client.List(w.ctx, groups, client.InNamespace(w.namespace)); !meta.IsNoMatchError(err) {
		require.NoError(w.t, err)
	}
	var partial []string
	for _, group := range groups.Items {
		bound := 0
		for _, pod := range w.pods(map[string]string{schedulingv1alpha1.PodGroupLabel: group.Name}) {
			if pod.Spec.NodeName != "" {
				bound++
			}
		}
		if bound > 0 && bound < int(group.Spec.MinMember) {
			partial = append(partial, fmt.Sprintf("%s: %d of %d", group.Name, bound, group.Spec.MinMember))
		}
	}
	return partial
}

// assertLedgersEmpty checks that nothing is left in a ledger of a cluster without pods and nodes.
func (w *world) assertLedgersEmpty() {
	w.t.Helper()
	for _, s := range w.schedulers {
		if s.ledger() == nil {
			continue
		}
		w.eventually("the ledger of an empty cluster is empty", func() (bool, string) {
			a := s.ledgerAccount()
			return len(a) == 0, "nodes: " + strings.Join(slices.Sorted(maps.Keys(a)), ", ")
		})
	}
}
