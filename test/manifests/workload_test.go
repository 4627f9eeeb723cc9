package manifests

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	schedv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/test/build"
)

// namespace is where the pods of the tests are.
const namespace = "shop"

// gpuDriver and gpuResource are names of devices: as a driver and class, and as an extended resource.
const (
	gpuDriver   = "gpu.example.com"
	gpuResource = "example.com/gpu"
)

// node makes a node that is ready for pods, as a kubelet would.
func (c *cluster) node(t *testing.T, name, zone, cpu string, taints ...corev1.Taint) {
	t.Helper()
	c.make(t, build.Node(name, zone, cpu, func(node *corev1.Node) { node.Spec.Taints = taints }))
}

// pod returns a pod that asks for some of a CPU. Nothing runs it, so it must not need time to end.
func pod(name, cpu string, change func(*corev1.Pod)) *corev1.Pod {
	p := build.Pod(name, cpu, build.Namespace(namespace), build.App(name))
	p.Spec.TerminationGracePeriodSeconds = ptr.To[int64](0)
	if change != nil {
		change(p)
	}
	return p
}

// bound waits until a pod has a node, and returns it.
func (c *cluster) bound(t *testing.T, name string) (node string) {
	t.Helper()
	until(t, "pod "+name+" is bound", func(ctx context.Context) (bool, error) {
		p, err := c.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		node = p.Spec.NodeName
		return node != "", nil
	})
	return node
}

// gone waits until a pod is deleted.
func (c *cluster) gone(t *testing.T, name string) {
	t.Helper()
	until(t, "pod "+name+" is deleted", func(ctx context.Context) (bool, error) {
		_, err := c.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		return apierrors.IsNotFound(err), nil
	})
}

// podGroup makes a gang.
func (c *cluster) podGroup(t *testing.T, name string, members int32) {
	t.Helper()
	c.make(t, &schedv1alpha1.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: schedv1alpha1.PodGroupSpec{MinMember: members},
	})
}

// spreadPolicy is a policy for the pods with the label app: NAME.
func spreadPolicy(name string) *v1alpha1.ZoneSpreadPolicy {
	return &v1alpha1.ZoneSpreadPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1alpha1.ZoneSpreadPolicySpec{PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}, MaxSkew: 1},
	}
}

// reservation is one for the pods with the label app, in slots of so many CPUs.
func reservation(name, app, cpu string) *v1alpha1.ZoneReservation {
	return &v1alpha1.ZoneReservation{ObjectMeta: named(name), Spec: v1alpha1.ZoneReservationSpec{
		Owners: []v1alpha1.ReservationOwner{{Namespace: namespace, PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}}},
		Slot:   v1alpha1.ReservationSlot{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}},
	}}
}

// replicaSetOfDeployment makes a Deployment and the ReplicaSet that its controller would make, and returns
// the owner reference for the pods.
func (c *cluster) replicaSetOfDeployment(t *testing.T, name string, replicas int32) metav1.OwnerReference {
	t.Helper()
	labels := map[string]string{"app": name}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod(name, "100m", nil).Spec}
	template.Spec.TerminationGracePeriodSeconds = nil
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       appsv1.DeploymentSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template},
	}
	c.make(t, d)
	rs := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name + "-1",
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment"))},
		},
		Spec: appsv1.ReplicaSetSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template},
	}
	c.make(t, rs)
	return *metav1.NewControllerRef(rs, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))
}

// storageClass makes a class whose volumes are bound when a pod has a node.
func (c *cluster) storageClass(t *testing.T, name, provisioner string) {
	t.Helper()
	c.make(t, &storagev1.StorageClass{
		ObjectMeta: named(name), Provisioner: provisioner, VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
	})
}

// volume makes a volume of a class, claimed by a claim or by nobody.
func (c *cluster) volume(t *testing.T, name, class string, claim *corev1.ObjectReference) {
	t.Helper()
	pv := &corev1.PersistentVolume{
		ObjectMeta: named(name),
		Spec: corev1.PersistentVolumeSpec{
			Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			StorageClassName:       class,
			ClaimRef:               claim,
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/none"}},
		},
	}
	c.make(t, pv)
	pv.Status.Phase = corev1.VolumeAvailable
	require.NoError(t, c.api.Status().Update(t.Context(), pv))
}

// volumeClaim makes a claim of a class, and returns a change that mounts it in a pod.
func (c *cluster) volumeClaim(t *testing.T, name, class string) func(*corev1.Pod) {
	t.Helper()
	c.make(t, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			StorageClassName: &class,
			Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	})
	return func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}}
	}
}

// bindClaim does what the volume controller does when the scheduler has chosen: it binds claim and volume.
func (c *cluster) bindClaim(t *testing.T, claim, volume string) {
	t.Helper()
	pvc, pv := &corev1.PersistentVolumeClaim{}, &corev1.PersistentVolume{}
	require.NoError(t, c.api.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: claim}, pvc))
	pvc.Spec.VolumeName = volume
	metav1.SetMetaDataAnnotation(&pvc.ObjectMeta, "pv.kubernetes.io/bind-completed", "yes")
	require.NoError(t, c.api.Update(t.Context(), pvc))
	pvc.Status.Phase = corev1.ClaimBound
	require.NoError(t, c.api.Status().Update(t.Context(), pvc))
	require.NoError(t, c.api.Get(t.Context(), client.ObjectKey{Name: volume}, pv))
	pv.Status.Phase = corev1.VolumeBound
	require.NoError(t, c.api.Status().Update(t.Context(), pv))
}

// devices gives a node devices, and makes their class, which is also an extended resource.
func (c *cluster) devices(t *testing.T, node string, names ...string) {
	t.Helper()
	c.make(t, &resourcev1.DeviceClass{
		ObjectMeta: named(gpuDriver),
		Spec: resourcev1.DeviceClassSpec{
			ExtendedResourceName: ptr.To(gpuResource),
			Selectors:            []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: `device.driver == "` + gpuDriver + `"`}}},
		},
	})
	var list []resourcev1.Device
	for _, name := range names {
		list = append(list, resourcev1.Device{Name: name})
	}
	c.make(t, &resourcev1.ResourceSlice{
		ObjectMeta: named(node + "-gpus"),
		Spec: resourcev1.ResourceSliceSpec{
			Driver: gpuDriver, NodeName: &node, Devices: list,
			Pool: resourcev1.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 1},
		},
	})
}

// deviceClaim makes a claim for one device, and returns a change that uses it in a pod.
func (c *cluster) deviceClaim(t *testing.T, name string) func(*corev1.Pod) {
	t.Helper()
	c.make(t, &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{
			{Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: gpuDriver}},
		}}},
	})
	return func(p *corev1.Pod) {
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &name}}
		p.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "gpu"}}
	}
}

// extendedResource asks for one device by the name of the extended resource.
func extendedResource(p *corev1.Pod) {
	p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{gpuResource: resource.MustParse("1")}
	build.Request(gpuResource, "1")(p)
}
