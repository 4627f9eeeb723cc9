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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

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
	capacity := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse("16Gi"), corev1.ResourcePods: resource.MustParse("110")}
	_, err := c.client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyZone: zone, corev1.LabelHostname: name}},
		Spec:       corev1.NodeSpec{Taints: taints},
		Status: corev1.NodeStatus{
			Capacity: capacity, Allocatable: capacity,
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
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

func (c *cluster) create(t *testing.T, p *corev1.Pod) {
	t.Helper()
	_, err := c.client.CoreV1().Pods(p.Namespace).Create(t.Context(), p, metav1.CreateOptions{})
	require.NoError(t, err)
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
func (c *cluster) podGroup(t *testing.T, name string, members int64) {
	t.Helper()
	_, err := c.dynamic.Resource(podGroups).Namespace(namespace).Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": podGroups.GroupVersion().String(), "kind": "PodGroup",
		"metadata": map[string]any{"name": name}, "spec": map[string]any{"minMember": members},
	}}, metav1.CreateOptions{})
	require.NoError(t, err)
}

// spreadPolicy makes a policy for the pods with the label app: NAME.
func (c *cluster) spreadPolicy(t *testing.T, name string) {
	t.Helper()
	_, err := c.dynamic.Resource(spreadPolicies).Namespace(namespace).Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": spreadPolicies.GroupVersion().String(), "kind": "ZoneSpreadPolicy",
		"metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"podSelector": map[string]any{"matchLabels": map[string]any{"app": name}},
			"maxSkew":     int64(1),
		},
	}}, metav1.CreateOptions{})
	require.NoError(t, err)
}

// replicaSetOfDeployment makes a Deployment and the ReplicaSet that its controller would make, and returns
// the owner reference for the pods.
func (c *cluster) replicaSetOfDeployment(t *testing.T, name string, replicas int32) metav1.OwnerReference {
	t.Helper()
	labels := map[string]string{"app": name}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod(name, "100m", nil).Spec}
	template.Spec.TerminationGracePeriodSeconds = nil
	d, err := c.client.AppsV1().Deployments(namespace).Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       appsv1.DeploymentSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	rs, err := c.client.AppsV1().ReplicaSets(namespace).Create(t.Context(), &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: name + "-1", OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment"))}},
		Spec:       appsv1.ReplicaSetSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	return *metav1.NewControllerRef(rs, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))
}

// storageClass makes a class whose volumes are bound when a pod has a node.
func (c *cluster) storageClass(t *testing.T, name, provisioner string) {
	t.Helper()
	_, err := c.client.StorageV1().StorageClasses().Create(t.Context(), &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner,
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
	}, metav1.CreateOptions{})
	require.NoError(t, err)
}

// volume makes a volume of a class, claimed by a claim or by nobody.
func (c *cluster) volume(t *testing.T, name, class string, claim *corev1.ObjectReference) {
	t.Helper()
	pv, err := c.client.CoreV1().PersistentVolumes().Create(t.Context(), &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			StorageClassName:       class,
			ClaimRef:               claim,
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/none"}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	pv.Status.Phase = corev1.VolumeAvailable
	_, err = c.client.CoreV1().PersistentVolumes().UpdateStatus(t.Context(), pv, metav1.UpdateOptions{})
	require.NoError(t, err)
}

// volumeClaim makes a claim of a class, and returns a change that mounts it in a pod.
func (c *cluster) volumeClaim(t *testing.T, name, class string) func(*corev1.Pod) {
	t.Helper()
	_, err := c.client.CoreV1().PersistentVolumeClaims(namespace).Create(t.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			StorageClassName: &class,
			Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	return func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}}
	}
}

// bindClaim does what the volume controller does when the scheduler has chosen: it binds claim and volume.
func (c *cluster) bindClaim(t *testing.T, claim, volume string) {
	t.Helper()
	claims, volumes := c.client.CoreV1().PersistentVolumeClaims(namespace), c.client.CoreV1().PersistentVolumes()
	pvc, err := claims.Get(t.Context(), claim, metav1.GetOptions{})
	require.NoError(t, err)
	pvc.Spec.VolumeName = volume
	metav1.SetMetaDataAnnotation(&pvc.ObjectMeta, "pv.kubernetes.io/bind-completed", "yes")
	pvc, err = claims.Update(t.Context(), pvc, metav1.UpdateOptions{})
	require.NoError(t, err)
	pvc.Status.Phase = corev1.ClaimBound
	_, err = claims.UpdateStatus(t.Context(), pvc, metav1.UpdateOptions{})
	require.NoError(t, err)
	pv, err := volumes.Get(t.Context(), volume, metav1.GetOptions{})
	require.NoError(t, err)
	pv.Status.Phase = corev1.VolumeBound
	_, err = volumes.UpdateStatus(t.Context(), pv, metav1.UpdateOptions{})
	require.NoError(t, err)
}

// devices gives a node devices, and makes their class, which is also an extended resource.
func (c *cluster) devices(t *testing.T, node string, names ...string) {
	t.Helper()
	_, err := c.client.ResourceV1().DeviceClasses().Create(t.Context(), &resourcev1.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: gpuDriver},
		Spec: resourcev1.DeviceClassSpec{
			ExtendedResourceName: ptr.To(gpuResource),
			Selectors:            []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: `device.driver == "` + gpuDriver + `"`}}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	var list []resourcev1.Device
	for _, name := range names {
		list = append(list, resourcev1.Device{Name: name})
	}
	_, err = c.client.ResourceV1().ResourceSlices().Create(t.Context(), &resourcev1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: node + "-gpus"},
		Spec: resourcev1.ResourceSliceSpec{
			Driver: gpuDriver, NodeName: &node, Devices: list,
			Pool: resourcev1.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 1},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
}

// deviceClaim makes a claim for one device, and returns a change that uses it in a pod.
func (c *cluster) deviceClaim(t *testing.T, name string) func(*corev1.Pod) {
	t.Helper()
	_, err := c.client.ResourceV1().ResourceClaims(namespace).Create(t.Context(), &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{
			{Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: gpuDriver}},
		}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	return func(p *corev1.Pod) {
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &name}}
		p.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "gpu"}}
	}
}

// extendedResource asks for one device by the name of the extended resource.
func extendedResource(p *corev1.Pod) {
	one := corev1.ResourceList{gpuResource: resource.MustParse("1")}
	p.Spec.Containers[0].Resources.Limits = one
	p.Spec.Containers[0].Resources.Requests[gpuResource] = resource.MustParse("1")
}
