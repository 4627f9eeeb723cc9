package framework

import (
	"context"

	schedulingv1alpha2 "k8s.io/api/scheduling/v1alpha2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// createNativeGang makes a gang that upstream's scheduler admits as a whole, in the API that it has for them.
func createNativeGang(ctx context.Context, client kubernetes.Interface, name string, minCount int32) error {
	_, err := client.SchedulingV1alpha2().PodGroups("default").Create(ctx, &schedulingv1alpha2.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)},
		Spec: schedulingv1alpha2.PodGroupSpec{SchedulingPolicy: schedulingv1alpha2.PodGroupSchedulingPolicy{
			Gang: &schedulingv1alpha2.GangSchedulingPolicy{MinCount: minCount},
		}},
	}, metav1.CreateOptions{})
	return err
}
