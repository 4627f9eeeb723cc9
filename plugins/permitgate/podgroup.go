package permitgate

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/internal/crdcache"
	"zonewise.dev/plugins/permitgate/gang"
)

// reasonNoCRD is the reason to wait of members whose PodGroup cannot exist.
const reasonNoCRD gang.Reason = "PodGroupCRDMissing"

// PodGroupWatch tells how far a watch of PodGroups is.
type PodGroupWatch interface {
	// Available reports whether the API server serves PodGroups.
	Available() bool
	// HasSynced reports whether the handler has seen all PodGroups that existed at first.
	HasSynced() bool
}

// PodGroupSource starts a watch that delivers PodGroups to handler until ctx ends, and calls onChange
// when their kind becomes available or stops being so. It must not call either before it returns.
type PodGroupSource func(ctx context.Context, handler toolscache.ResourceEventHandler, onChange func(available bool)) (PodGroupWatch, error)

// watchPodGroupsLocked starts the watch of PodGroups. Without an API server there are none.
func (s *Shared) watchPodGroupsLocked(ctx context.Context, config *rest.Config) error {
	source := s.source
	if source == nil {
		if config == nil {
			return nil
		}
		source = fromAPIServer(config)
	}
	handler := toolscache.ResourceEventHandlerFuncs{
		AddFunc:    s.groupSeen,
		UpdateFunc: func(_, after any) { s.groupSeen(after) },
		DeleteFunc: s.groupGone,
	}
	groups, err := source(ctx, handler, func(bool) { s.enqueueAll() })
	if err != nil {
		return fmt.Errorf("watching PodGroups: %w", err)
	}
	s.groups = groups
	return nil
}

// fromAPIServer watches the PodGroups of the API server behind config. A CRD that is not installed is
// no error: the watch begins when it is.
func fromAPIServer(config *rest.Config) PodGroupSource {
	return func(ctx context.Context, handler toolscache.ResourceEventHandler, onChange func(bool)) (PodGroupWatch, error) {
		scheme := runtime.NewScheme()
		if err := v1alpha1.AddToScheme(scheme); err != nil {
			return nil, err
		}
		cache, err := crdcache.New(config, scheme)
		if err != nil {
			return nil, err
		}
		kind, err := cache.Watch(ctx, &v1alpha1.PodGroup{}, handler, onChange)
		if err != nil {
			return nil, err
		}
		go cache.Run(ctx)
		client, err := crdcache.JSONClient(config, v1alpha1.SchemeGroupVersion)
		if err != nil {
			return nil, fmt.Errorf("client for the status of PodGroups: %w", err)
		}
		return servedGroups{kind, client}, nil
	}
}

// servedGroups are the PodGroups of an API server.
type servedGroups struct {
	*crdcache.Kind
	rest.Interface
}

// PatchStatus implements StatusPatcher.
func (g servedGroups) PatchStatus(ctx context.Context, namespace, name string, patch []byte) error {
	return g.Patch(types.MergePatchType).Namespace(namespace).Resource("podgroups").Name(name).
		SubResource("status").Body(patch).Do(ctx).Error()
}

// missing says why a PodGroup is not known.
func (s *Shared) missing() answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.missingLocked()
}

func (s *Shared) missingLocked() answer {
	switch {
	case s.groups == nil || !s.groups.Available():
		return answer{reasonNoCRD, "the CustomResourceDefinition podgroups." + v1alpha1.SchemeGroupVersion.Group + " is not installed; the pod waits until it is"}
	case !s.groups.HasSynced():
		return answer{gang.ReasonNotFound, "PodGroups have not been read yet"}
	}
	return answer{gang.ReasonNotFound, "the PodGroup does not exist in the pod's namespace"}
}

// groupSeen takes a PodGroup as the API server shows it. One that is being deleted still counts: its
// finalizers may take long, and nobody else can take its name meanwhile.
func (s *Shared) groupSeen(obj any) {
	group, ok := object[*v1alpha1.PodGroup](obj)
	if !ok {
		return
	}
	spec := gang.Spec{UID: group.UID, MinMember: int(group.Spec.MinMember)}
	spec.Timeout, _ = timeoutOf(group)
	s.change(keyOf(group), func(e *entry, now time.Time) {
		e.group = group
		e.told.setGroup(group.UID)
		e.gang.SetGroup(spec, now)
	})
	s.statusQueue.AddAfter(keyOf(group), statusPause)
}

// timeoutOf returns how long members wait for the quorum, 0 for the scheduler's default, and what is wrong
// with what the PodGroup says about that.
func timeoutOf(group *v1alpha1.PodGroup) (timeout time.Duration, complaint string) {
	seconds := group.Spec.ScheduleTimeoutSeconds
	if seconds == nil {
		return 0, ""
	}
	switch timeout := time.Duration(*seconds) * time.Second; {
	case timeout <= 0:
		return 0, fmt.Sprintf("spec.scheduleTimeoutSeconds is %d, must be at least 1: the scheduler's default is used", *seconds)
	case timeout > maxScheduleTimeout:
		return maxScheduleTimeout, fmt.Sprintf("spec.scheduleTimeoutSeconds is %d, the scheduler waits at most %d: that is used", *seconds, int(maxScheduleTimeout.Seconds()))
	default:
		return timeout, ""
	}
}

func (s *Shared) groupGone(obj any) {
	group, ok := object[*v1alpha1.PodGroup](obj)
	if !ok {
		return
	}
	s.change(keyOf(group), func(e *entry, now time.Time) {
		e.group = nil
		e.told.setGroup("")
		e.gang.DeleteGroup(now)
	})
}
