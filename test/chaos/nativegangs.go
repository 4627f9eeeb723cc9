package chaos

import (
	"encoding/json"
	"strings"

	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
)

// Some gangs are of Kubernetes' own API. Their pods have the label of the other API as well, which does not count then:
// it names the gang to those who judge.

const (
	hasNativeGangs = true
	// nativeGates turns them on, in the API server and in schedulers.
	nativeGates = "GenericWorkload=true"
)

// nativeFlags are those of the API server. The finalizers of its admission plugin would need a controller.
var nativeFlags = map[string]string{
	"feature-gates": nativeGates, "runtime-config": "scheduling.k8s.io/v1beta1=true", "disable-admission-plugins": "ServiceAccount,PodGroupProtection",
}

// nativeKinds are the kinds of what is made for them alone.
var nativeKinds = []client.Object{&schedulingv1beta1.PodGroup{}}

// nativeObjects are what is wanted for native gangs.
func nativeObjects(gangs []*gang) []wantedObjects {
	var groups []client.Object
	for _, g := range gangs {
		if !g.native {
			continue
		}
		groups = append(groups, &schedulingv1beta1.PodGroup{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: g.name},
			Spec: schedulingv1beta1.PodGroupSpec{
				PriorityClassName: g.class,
				SchedulingPolicy:  schedulingv1beta1.PodGroupSchedulingPolicy{Gang: &schedulingv1beta1.GangSchedulingPolicy{MinCount: int32(g.minMember)}},
			},
		})
	}
	return []wantedObjects{{&schedulingv1beta1.PodGroupList{}, groups}}
}

// updateNativeGroup changes what steps can change, if it is a native PodGroup, and reports whether there was something
// to change.
func updateNativeGroup(have, want client.Object) bool {
	group, ok := have.(*schedulingv1beta1.PodGroup)
	if !ok {
		return false
	}
	policy, wanted := group.Spec.SchedulingPolicy.Gang, want.(*schedulingv1beta1.PodGroup).Spec.SchedulingPolicy.Gang
	changed := policy.MinCount != wanted.MinCount
	policy.MinCount = wanted.MinCount
	return changed
}

// joinNativeGang makes a pod a member.
func joinNativeGang(pod *v1.Pod, name string) {
	pod.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: &name}
}

// nativeGroupOf reads a native PodGroup in the form of the other API; nil if the key is of another kind.
func nativeGroupOf(key string, value []byte) (*schedulingv1alpha1.PodGroup, error) {
	if !strings.HasPrefix(key, "/registry/podgroups/") {
		return nil, nil
	}
	group := &schedulingv1beta1.PodGroup{}
	err := json.Unmarshal(value, group)
	group.ManagedFields = nil
	other := &schedulingv1alpha1.PodGroup{ObjectMeta: group.ObjectMeta}
	if group.Spec.SchedulingPolicy.Gang != nil {
		other.Spec.MinMember = group.Spec.SchedulingPolicy.Gang.MinCount
	}
	return other, err
}
