package framework

import (
	"context"
	"testing/synctest"

	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// createComposite creates a composite group that needs so many of its groups. It is the root without a parent.
func createComposite(ctx context.Context, client kubernetes.Interface, parent, name string, minGroupCount int32) error {
	group := &schedulingv1alpha3.CompositePodGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-composite-" + name)},
		Spec: schedulingv1alpha3.CompositePodGroupSpec{
			WorkloadRef: &schedulingv1alpha3.WorkloadReference{WorkloadName: "workload", TemplateName: name},
			SchedulingPolicy: schedulingv1alpha3.CompositePodGroupSchedulingPolicy{
				Gang: &schedulingv1alpha3.CompositeGangSchedulingPolicy{MinGroupCount: minGroupCount},
			},
		},
	}
	if parent != "" {
		group.Spec.ParentCompositePodGroupName = &parent
	}
	_, err := client.SchedulingV1alpha3().CompositePodGroups("default").Create(ctx, group, metav1.CreateOptions{})
	synctest.Wait()
	return err
}
