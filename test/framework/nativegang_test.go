package framework

import (
	"context"
	"testing/synctest"

	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// createNativeGang makes a gang that upstream's scheduler admits as a whole, in the API that it has for them.
func createNativeGang(ctx context.Context, client kubernetes.Interface, name string, minCount int32) error {
	_, err := client.SchedulingV1beta1().PodGroups("default").Create(ctx, &schedulingv1beta1.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)},
		Spec: schedulingv1beta1.PodGroupSpec{SchedulingPolicy: schedulingv1beta1.PodGroupSchedulingPolicy{
			Gang: &schedulingv1beta1.GangSchedulingPolicy{MinCount: minCount},
		}},
	}, metav1.CreateOptions{})
	synctest.Wait() // the scheduler knows it before its pods, which come by another watch
	return err
}
