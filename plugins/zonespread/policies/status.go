package policies

import (
	"context"
	"fmt"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/internal/crdcache"
	"zonewise.dev/plugins/zonespread/policy"
)

const (
	// statusPause gathers changes: a policy's status is written at most once a second.
	statusPause = time.Second
	// statusRetry is how long a failed write waits.
	statusRetry = 5 * time.Second
)

// lead starts what only the leader does.
func (s *Policies) lead(ctx context.Context) {
	s.mu.Lock()
	s.leading.Store(true)
	for uid := range s.entries {
		s.statusQueue.Add(uid)
	}
	s.mu.Unlock()
	go crdcache.KeepStatuses(ctx, s.statusQueue, "ZoneSpreadPolicy", statusRetry, s.writeStatus)
}

// writeStatus writes one policy's status if it is not what it should be.
func (s *Policies) writeStatus(ctx context.Context, uid types.UID) error {
	obj, want := s.desiredStatus(uid)
	if obj == nil || apiequality.Semantic.DeepEqual(obj.Status, want) {
		return nil
	}
	patch, err := statusPatch(obj, want)
	if err != nil {
		return err
	}
	err = s.watch.PatchStatus(ctx, obj.Namespace, obj.Name, patch)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("%s/%s: %w", obj.Namespace, obj.Name, err)
	}
	s.tell(klog.FromContext(ctx), obj, &want)
	return nil
}

// desiredStatus returns a policy as last seen and the status that it should have; nil for one that is gone.
func (s *Policies) desiredStatus(uid types.UID) (*v1alpha1.ZoneSpreadPolicy, v1alpha1.ZoneSpreadPolicyStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.entries[uid]
	if !ok || !s.served || e.obj.DeletionTimestamp != nil {
		return nil, v1alpha1.ZoneSpreadPolicyStatus{}
	}
	now := s.clock.Now()
	if e.policy == nil {
		return e.obj, policy.Rejected(e.obj, e.errs, now)
	}
	return e.obj, e.policy.Status(e.machine, policy.Observation{
		Revisions: s.placedLocked(e),
		Demand:    s.demandLocked(e, nil),
		Waiting:   int64(len(e.refused)),
	}, e.obj.Status, now)
}

// statusPatch returns the merge patch that gives a policy its status.
func statusPatch(obj *v1alpha1.ZoneSpreadPolicy, want v1alpha1.ZoneSpreadPolicyStatus) ([]byte, error) {
	if want.Zones == nil {
		want.Zones = []v1alpha1.ZoneStatus{}
	}
	if want.Conditions == nil {
		want.Conditions = []metav1.Condition{}
	}
	return crdcache.StatusPatch(obj, map[string]any{
		"observedGeneration": want.ObservedGeneration, "replicas": want.Replicas, "pods": want.Pods, "skew": want.Skew,
		"zones": want.Zones, "conditions": want.Conditions,
	})
}
