package serve

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/internal/crd"
	"zonewise.dev/plugins/zonespread/policy"
)

// placeLocked returns the place of a policy among those of its namespace by age, from 0: where it is, or where it
// belongs.
func (s *Policies) placeLocked(obj *v1alpha1.ZoneSpreadPolicy) int {
	place, _ := slices.BinarySearchFunc(s.byAge[obj.Namespace], obj,
		func(e *entry, obj *v1alpha1.ZoneSpreadPolicy) int { return policy.Older(e.object.Latest, obj) })
	return place
}

// compileLocked compiles a policy that is in its place. The error leaves out how many there are, so that it is the same
// after a restart.
func (s *Policies) compileLocked(obj *v1alpha1.ZoneSpreadPolicy) (*policy.Policy, field.ErrorList) {
	if s.placeLocked(obj) >= policy.NamespaceLimit {
		return nil, field.ErrorList{field.TooMany(field.NewPath("metadata", "namespace"), -1, policy.NamespaceLimit)}
	}
	return policy.Compile(obj)
}

// enterLocked gives a new policy its place. The one that it pushes over the limit no longer applies.
func (s *Policies) enterLocked(e *entry, obj *v1alpha1.ZoneSpreadPolicy) {
	place := s.placeLocked(obj)
	s.byAge[obj.Namespace] = slices.Insert(s.byAge[obj.Namespace], place, e)
	if place < policy.NamespaceLimit {
		s.placeChangedLocked(obj.Namespace, policy.NamespaceLimit)
	}
}

// leaveLocked takes the place of a policy away. The first one over the limit applies now.
func (s *Policies) leaveLocked(obj *v1alpha1.ZoneSpreadPolicy) {
	place := s.placeLocked(obj)
	s.byAge[obj.Namespace] = slices.Delete(s.byAge[obj.Namespace], place, place+1)
	if len(s.byAge[obj.Namespace]) == 0 {
		delete(s.byAge, obj.Namespace)
	}
	if place < policy.NamespaceLimit {
		s.placeChangedLocked(obj.Namespace, policy.NamespaceLimit-1)
	}
}

// placeChangedLocked compiles the policy in a place again, if there is one.
func (s *Policies) placeChangedLocked(namespace string, place int) {
	if place >= len(s.byAge[namespace]) {
		return
	}
	e := s.byAge[namespace][place]
	latest := e.object.Latest
	e.object = crd.Object[*v1alpha1.ZoneSpreadPolicy, *policy.Policy]{}
	e.object.See(latest, s.compileLocked)
	s.respecLocked(e)
}
