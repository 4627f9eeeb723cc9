package policies

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/plugins/zonespread/policy"
)

// watchPoliciesLocked starts the watch of policies.
func (s *Policies) watchPoliciesLocked(ctx context.Context, config *rest.Config) error {
	source := s.source
	if source == nil {
		source = fromAPIServer(config)
	}
	handler := toolscache.ResourceEventHandlerFuncs{
		AddFunc: s.policySeen,
		UpdateFunc: func(before, after any) {
			if was, ok := object[*v1alpha1.ZoneSpreadPolicy](before); ok {
				if is, ok := object[*v1alpha1.ZoneSpreadPolicy](after); ok && was.UID != is.UID {
					s.policyGone(before) // another policy of the name
				}
			}
			s.policySeen(after)
		},
		DeleteFunc: s.policyGone,
	}
	watch, err := source(ctx, handler, s.servedChanged)
	if err != nil {
		return fmt.Errorf("watching ZoneSpreadPolicies: %w", err)
	}
	s.watch = watch
	return nil
}

// servedChanged turns everything on or off with the CustomResourceDefinition.
func (s *Policies) servedChanged(available bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.served = available
	s.publishLocked()
	for uid, e := range s.entries {
		e.wake = true
		s.queue.Add(uid)
	}
}

// policySeen takes a policy as the API server shows it.
func (s *Policies) policySeen(o any) {
	obj, ok := object[*v1alpha1.ZoneSpreadPolicy](o)
	if !ok {
		return
	}
	if obj.DeletionTimestamp == nil {
		s.cluster.startOwners()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.served = true // AwaitStart may return before servedChanged is called
	e, known := s.entries[obj.UID]
	if !known {
		e = &entry{replicas: -1, pods: newMembers(), refused: map[types.UID]bool{}}
		s.entries[obj.UID] = e
	}
	changed := !known || e.obj.Generation != obj.Generation
	e.obj = obj
	if changed {
		s.respecLocked(e)
	} else if !s.leading.Load() && e.policy != nil {
		// What the leader remembers is all in the status: a standby that takes over goes on from there.
		e.machine = policy.NewMachine(e.policy, obj.Status.Zones)
		s.observeNodesLocked(e)
	}
	s.queue.Add(obj.UID)
	s.statusQueue.AddAfter(obj.UID, statusPause)
}

// respecLocked takes in the spec of a policy that is new or has changed.
func (s *Policies) respecLocked(e *entry) {
	e.policy, e.errs = policy.Compile(e.obj)
	e.fresh = false
	e.wake = true // pods of the old spec may go elsewhere now, and those of the new one, too
	switch {
	case e.policy == nil: // rejected; the machine keeps what it knows until the spec is mended
	case e.machine == nil:
		e.machine = policy.NewMachine(e.policy, e.obj.Status.Zones)
	default:
		e.machine.Respec(e.policy)
	}
	s.publishLocked()
	previous := e.pods
	e.pods = newMembers()
	if e.policy != nil {
		s.fillLocked(e)
		s.observeNodesLocked(e)
	}
	e.pods.former = previous.waiting()
	for uid := range e.refused {
		if _, ok := e.pods.facts[uid]; !ok {
			delete(e.refused, uid)
		}
	}
}

// policyGone forgets a policy and wakes the pods that it may have held up.
func (s *Policies) policyGone(o any) {
	obj, ok := object[*v1alpha1.ZoneSpreadPolicy](o)
	if !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.entries[obj.UID]
	if !ok {
		return
	}
	delete(s.entries, obj.UID)
	s.publishLocked()
	s.orphans = append(s.orphans, e.pods.waiting()...)
	s.queue.Add(orphans)
}

// sortByName orders policies as they are named in messages.
func sortByName(list []*applied) {
	slices.SortFunc(list, func(a, b *applied) int { return strings.Compare(a.policy.Key(), b.policy.Key()) })
}

// object returns the object of an event, also of a deletion whose last state is not known for sure.
func object[T any](o any) (T, bool) {
	if unknown, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
		o = unknown.Obj
	}
	t, ok := o.(T)
	return t, ok
}
