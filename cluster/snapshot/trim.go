package snapshot

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Trim removes from an object what no scheduler plugin uses and what does not belong in a file: environment variables,
// commands, annotations that decide nothing, paths, parameters and data of drivers, managed fields but who has given a
// pod its deletion cost. The names of images and of volumes become hashes, which are equal if the names are equal and
// are not comparable between processes. To trim an object again, as informers do, changes nothing.
func Trim(obj client.Object) {
	obj.SetManagedFields(costManagers(obj))
	obj.SetAnnotations(keptAnnotationsOf(obj.GetAnnotations()))
	switch o := obj.(type) {
	case *v1.Pod:
		trimPod(&o.Spec)
		if !slices.ContainsFunc(o.Status.Conditions, func(c v1.PodCondition) bool {
			return c.Type == v1.PodResizePending || c.Type == v1.PodResizeInProgress
		}) {
			// What its containers have is what its spec says.
			o.Status.ContainerStatuses, o.Status.InitContainerStatuses = nil, nil
		}
		o.Status = v1.PodStatus{
			Phase: o.Status.Phase, Conditions: readConditions(o.Status.Conditions), Reason: o.Status.Reason,
			QOSClass:          o.Status.QOSClass,
			NominatedNodeName: o.Status.NominatedNodeName, StartTime: o.Status.StartTime, Resize: o.Status.Resize,
			AllocatedResources: o.Status.AllocatedResources, Resources: o.Status.Resources,
			ResourceClaimStatuses:       o.Status.ResourceClaimStatuses,
			ExtendedResourceClaimStatus: o.Status.ExtendedResourceClaimStatus,
			ContainerStatuses:           resized(o.Status.ContainerStatuses),
			InitContainerStatuses:       resized(o.Status.InitContainerStatuses),
		}
	case *v1.Node:
		o.Spec = v1.NodeSpec{Unschedulable: o.Spec.Unschedulable, Taints: o.Spec.Taints}
		o.Status.Addresses, o.Status.NodeInfo, o.Status.Config = nil, v1.NodeSystemInfo{}, nil
		for i := range o.Status.Images {
			for j, name := range o.Status.Images[i].Names {
				o.Status.Images[i].Names[j] = hashedImage(name)
			}
		}
	case *appsv1.Deployment:
		trimTemplate(&o.Spec.Template)
	case *appsv1.ReplicaSet:
		trimTemplate(&o.Spec.Template)
	case *appsv1.StatefulSet:
		trimTemplate(&o.Spec.Template)
	case *appsv1.DaemonSet:
		trimTemplate(&o.Spec.Template)
	case *batchv1.Job:
		trimTemplate(&o.Spec.Template)
	case *v1.ReplicationController:
		if o.Spec.Template != nil {
			trimTemplate(o.Spec.Template)
		}
	case *v1.Service:
		o.Spec, o.Status = v1.ServiceSpec{Selector: o.Spec.Selector}, v1.ServiceStatus{}
	case *v1.PersistentVolume:
		trimVolume(&o.Spec)
	case *storagev1.StorageClass:
		o.Parameters, o.MountOptions = nil, nil
	case *storagev1.VolumeAttachment:
		o.Spec.Source.InlineVolumeSpec, o.Status = nil, storagev1.VolumeAttachmentStatus{Attached: o.Status.Attached}
	case *resourcev1.DeviceClass:
		o.Spec.Config = nil
	case *resourcev1.ResourceClaimTemplate:
		o.Spec.Spec.Devices.Config = nil
	case *resourcev1.ResourceClaim:
		o.Spec.Devices.Config, o.Status.Devices = nil, nil
		if o.Status.Allocation != nil {
			o.Status.Allocation.Devices.Config = nil
		}
	}
}

// readConditions leaves out the conditions that kubelets write on their way to Ready.
func readConditions(conditions []v1.PodCondition) []v1.PodCondition {
	var out []v1.PodCondition
	for i := range conditions {
		switch c := &conditions[i]; c.Type {
		case v1.PodInitialized, v1.ContainersReady, v1.PodReadyToStartContainers:
		default:
			out = append(out, *c)
		}
	}
	return slices.Clip(out)
}

// costField is the deletion cost of a pod in managed fields.
const costField = `"f:` + v1.PodDeletionCost + `"`

// costManagers returns who has given a pod its deletion cost: the managed fields that have it, without their fields.
func costManagers(obj client.Object) []metav1.ManagedFieldsEntry {
	if _, has := obj.GetAnnotations()[v1.PodDeletionCost]; !has {
		return nil
	}
	var out []metav1.ManagedFieldsEntry
	for _, f := range obj.GetManagedFields() {
		if f.FieldsV1 == nil && f.Manager != "" || f.FieldsV1 != nil && strings.Contains(f.FieldsV1.GetRawString(), costField) { // without fields it is trimmed already
			out = append(out, metav1.ManagedFieldsEntry{Manager: f.Manager, Operation: f.Operation})
		}
	}
	return out
}

// keptAnnotations are the annotations by which schedulers, volume controllers and those that evict pods decide.
var keptAnnotations = []string{
	v1.MirrorPodAnnotationKey, resourcev1.PodResourceClaimAnnotation, "deployment.kubernetes.io/desired-replicas", "rollout.argoproj.io/desired-replicas",
	"storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class",
	"storage.alpha.kubernetes.io/migrated-plugins",
	batchv1.JobIndexFailureCountAnnotation, "controller.kubernetes.io/pod-deletion-cost",
	"cluster-autoscaler.kubernetes.io/safe-to-evict",
}

// keptPrefixes are the same for groups of annotations.
var keptPrefixes = []string{
	"zonewise.dev/", "pv.kubernetes.io/", "volume.kubernetes.io/", "volume.beta.kubernetes.io/", "karpenter.sh/",
	"descheduler.alpha.kubernetes.io/",
}

// keptAnnotationsOf returns those of the annotations that are kept.
func keptAnnotationsOf(annotations map[string]string) map[string]string {
	out := map[string]string{}
	for key, value := range annotations {
		if slices.Contains(keptAnnotations, key) ||
			slices.ContainsFunc(keptPrefixes, func(prefix string) bool { return strings.HasPrefix(key, prefix) }) {
			out[key] = value
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// hashedImage hashes an image's name, so that a snapshot shows only whether two images are the same.
func hashedImage(name string) string {
	if name == "" || strings.HasPrefix(name, "image:"+hashMark) {
		return name
	}
	if strings.LastIndex(name, ":") <= strings.LastIndex(name, "/") {
		name += ":latest"
	}
	return "image:" + hashed(name)
}

// salt is another one in each process: otherwise lists of well-known names would tell which name a hash is of.
var salt = rand.Text()

// hashMark is how hashes begin, so that they stay as they are when an object is trimmed again.
const hashMark = "zonewise-hash-"

func hashed(name string) string {
	if name == "" || strings.HasPrefix(name, hashMark) {
		return name
	}
	sum := sha256.Sum256([]byte(salt + name))
	return hashMark + hex.EncodeToString(sum[:8])
}

func trimTemplate(t *v1.PodTemplateSpec) {
	t.Annotations = keptAnnotationsOf(t.Annotations)
	trimPod(&t.Spec)
}

// trimmedContainers returns others: an informer may trim a pod again that shares its containers with others.
func trimmedContainers(containers []v1.Container) []v1.Container {
	if containers == nil {
		return nil
	}
	out := make([]v1.Container, len(containers))
	for i := range containers {
		c := &containers[i]
		out[i] = v1.Container{
			Name: c.Name, Image: hashedImage(c.Image), Resources: c.Resources, Ports: c.Ports, RestartPolicy: c.RestartPolicy,
		}
	}
	return out
}

func trimPod(spec *v1.PodSpec) {
	spec.Containers, spec.InitContainers = trimmedContainers(spec.Containers), trimmedContainers(spec.InitContainers)
	spec.EphemeralContainers, spec.ImagePullSecrets, spec.HostAliases, spec.DNSConfig, spec.SecurityContext = nil, nil, nil, nil, nil
	var volumes []v1.Volume
	for _, v := range spec.Volumes {
		if source := keptSource(v.VolumeSource); source != (v1.VolumeSource{}) {
			volumes = append(volumes, v1.Volume{Name: v.Name, VolumeSource: source})
		}
	}
	spec.Volumes = volumes
}

// keptSource keeps claims, which disk a volume is, and that it is on the node: filters count disks, and keep pods apart
// that share one, and pods with data on their node are not moved. It returns an empty source for all others.
func keptSource(v v1.VolumeSource) v1.VolumeSource {
	out := v1.VolumeSource{
		PersistentVolumeClaim: v.PersistentVolumeClaim, Ephemeral: v.Ephemeral, GCEPersistentDisk: hashedGCE(v.GCEPersistentDisk),
		AWSElasticBlockStore: hashedAWS(v.AWSElasticBlockStore),
	}
	if v.EmptyDir != nil {
		out.EmptyDir = &v1.EmptyDirVolumeSource{Medium: v.EmptyDir.Medium}
	}
	if v.HostPath != nil {
		out.HostPath = &v1.HostPathVolumeSource{}
	}
	if d := v.ISCSI; d != nil {
		out.ISCSI = &v1.ISCSIVolumeSource{IQN: hashed(d.IQN), ReadOnly: d.ReadOnly}
	}
	if d := v.RBD; d != nil {
		out.RBD = &v1.RBDVolumeSource{RBDPool: hashed(d.RBDPool), RBDImage: hashed(d.RBDImage), ReadOnly: d.ReadOnly}
		for _, monitor := range d.CephMonitors {
			out.RBD.CephMonitors = append(out.RBD.CephMonitors, hashed(monitor))
		}
	}
	if d := v.AzureDisk; d != nil {
		out.AzureDisk = &v1.AzureDiskVolumeSource{DiskName: hashed(d.DiskName), DataDiskURI: hashed(d.DataDiskURI)}
	}
	if d := v.Cinder; d != nil {
		out.Cinder = &v1.CinderVolumeSource{VolumeID: hashed(d.VolumeID)}
	}
	return out
}

func hashedGCE(d *v1.GCEPersistentDiskVolumeSource) *v1.GCEPersistentDiskVolumeSource {
	if d == nil {
		return nil
	}
	return &v1.GCEPersistentDiskVolumeSource{PDName: hashed(d.PDName), ReadOnly: d.ReadOnly}
}

// hashedAWS keeps the form of the volume's ID, without which the scheduler does not know the volume as one of CSI.
func hashedAWS(d *v1.AWSElasticBlockStoreVolumeSource) *v1.AWSElasticBlockStoreVolumeSource {
	if d == nil {
		return nil
	}
	return &v1.AWSElasticBlockStoreVolumeSource{VolumeID: "vol-" + hashed(strings.TrimPrefix(d.VolumeID, "vol-")), ReadOnly: d.ReadOnly}
}

// resized keeps what a pod that is being resized takes from its node.
func resized(statuses []v1.ContainerStatus) []v1.ContainerStatus {
	var out []v1.ContainerStatus
	for i := range statuses {
		if s := &statuses[i]; s.Resources != nil || s.AllocatedResources != nil {
			out = append(
				out, v1.ContainerStatus{Name: s.Name, Resources: s.Resources, AllocatedResources: s.AllocatedResources},
			)
		}
	}
	return out
}

func trimVolume(spec *v1.PersistentVolumeSpec) {
	source := v1.PersistentVolumeSource{
		GCEPersistentDisk: hashedGCE(spec.GCEPersistentDisk), AWSElasticBlockStore: hashedAWS(spec.AWSElasticBlockStore),
	}
	if d := spec.AzureDisk; d != nil {
		source.AzureDisk = &v1.AzureDiskVolumeSource{DiskName: hashed(d.DiskName), DataDiskURI: hashed(d.DataDiskURI)}
	}
	if d := spec.Cinder; d != nil {
		source.Cinder = &v1.CinderPersistentVolumeSource{VolumeID: hashed(d.VolumeID)}
	}
	if csi := spec.CSI; csi != nil {
		// Volumes with the same handle are one volume, which counts once against a node's limit.
		source.CSI = &v1.CSIPersistentVolumeSource{Driver: csi.Driver, VolumeHandle: hashed(csi.VolumeHandle)}
	}
	spec.PersistentVolumeSource, spec.MountOptions = source, nil
}
