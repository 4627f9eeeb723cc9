// Package kinds has the kinds of objects that a copy of a cluster has. It links no scheduler, so that what only reads
// or writes such objects need not either.
package kinds

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/internal/crd"
)

// All returns an empty object of each kind that a copy of a cluster has. Other kinds are served without objects.
func All() []client.Object {
	return slices.Concat([]client.Object{
		&v1.Namespace{}, &schedulingv1.PriorityClass{}, &v1.Node{},
		&storagev1.StorageClass{}, &storagev1.CSIDriver{}, &storagev1.CSINode{}, &storagev1.CSIStorageCapacity{},
		&storagev1.VolumeAttachment{},
		&v1.PersistentVolume{}, &v1.PersistentVolumeClaim{},
		&resourcev1.DeviceClass{}, &resourcev1.ResourceSlice{}, newDeviceTaintRule(),
		&resourcev1.ResourceClaimTemplate{}, &resourcev1.ResourceClaim{},
		&v1.Service{}, &v1.ReplicationController{}, &appsv1.Deployment{}, &appsv1.ReplicaSet{}, &appsv1.StatefulSet{},
		&appsv1.DaemonSet{}, &batchv1.Job{},
		&policyv1.PodDisruptionBudget{},
		&v1alpha1.ZoneSpreadPolicy{}, &v1alpha1.ZoneReservation{}, &v1alpha1.ZoneSurvival{}, &v1alpha1.ZoneRebalance{},
		&schedulingv1alpha1.PodGroup{},
	}, nativePodGroups(), []client.Object{
		&v1.Pod{}, // last, so that its handlers find everything else
	})
}

// Admission returns an empty object of each kind by which an API server changes new pods. A copy has only what comes of
// it.
func Admission() []client.Object { return []client.Object{&v1.LimitRange{}, &nodev1.RuntimeClass{}} }

// Scheme has the kinds of Kubernetes and of the pack. It is shared, and nothing is added to it.
var Scheme = func() *runtime.Scheme {
	scheme := crd.Scheme()
	utilruntime.Must(clientscheme.AddToScheme(scheme))
	return scheme
}()

// ResourceOf returns the resource name of an object's kind, such as podgroups.scheduling.x-k8s.io, and the kind.
func ResourceOf(obj client.Object) (schema.GroupResource, schema.GroupVersionKind) {
	gvks, _, err := Scheme.ObjectKinds(obj)
	utilruntime.Must(err) // callers have an object of All
	plural, _ := meta.UnsafeGuessKindToResource(gvks[0])
	return plural.GroupResource(), gvks[0]
}
