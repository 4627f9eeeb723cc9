package simulate

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	apiv1 "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	schedv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
	"sigs.k8s.io/yaml"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/sim/kinds"
)

// maxPods limits what one workload adds; no cluster holds as many.
const maxPods = 500_000

// Workload is what a file of manifests would add to a cluster.
type Workload struct {
	Name string
	// Pods are the pods that the controllers would make.
	Pods []*corev1.Pod
	// others are workloads, claims, policies and PodGroups that affect where the pods may go.
	others []client.Object
	// leftOut says which objects of the file are no part of the simulation.
	leftOut []string
}

// objects returns copies of all objects.
func (w *Workload) objects() []client.Object {
	var out []client.Object
	for _, obj := range w.others {
		out = append(out, obj.DeepCopyObject().(client.Object)) //nolint:forcetypeassert // a copy has the type of the original
	}
	for _, pod := range w.Pods {
		out = append(out, pod.DeepCopy())
	}
	return out
}

// ParseWorkload reads manifests: Pods, Deployments, ReplicaSets, StatefulSets, Jobs, ReplicationControllers, PodGroups,
// ZoneSpreadPolicies, ZoneReservations and PersistentVolumeClaims. Objects without a namespace are in the given one. Each
// workload is multiplied by copies: one that is not a gang gets more replicas with the same labels; a gang becomes several
// gangs. The snapshot has the cluster's PriorityClasses.
func ParseWorkload(name string, r io.Reader, namespace string, copies int, s *snapshot.Snapshot) (*Workload, error) {
	p := &parser{workload: &Workload{Name: name}, namespace: namespace, copies: copies, snapshot: s}
	documents := utilyaml.NewYAMLReader(bufio.NewReader(r))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if err := p.take(document); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	if len(p.workload.Pods) == 0 {
		return nil, fmt.Errorf("%s: there is no Pod, Deployment, ReplicaSet, StatefulSet, Job or ReplicationController with replicas in it", name)
	}
	return p.workload, nil
}

type parser struct {
	workload  *Workload
	namespace string
	copies    int
	snapshot  *snapshot.Snapshot
	serial    int
}

var decoder = serializer.NewCodecFactory(kinds.Scheme, serializer.EnableStrict).UniversalDeserializer()

func (p *parser) take(document []byte) error {
	document, err := yaml.YAMLToJSONStrict(document)
	if err != nil || string(document) == "null" { // comments alone
		return err
	}
	object, gvk, err := decoder.Decode(document, nil, nil)
	switch {
	case runtime.IsNotRegisteredError(err): // a custom resource of somebody else
		p.leaveOut(gvk.Kind)
		return nil
	case err != nil:
		return err
	}
	o, ok := object.(client.Object)
	if !ok {
		return fmt.Errorf("%T is no single object", object)
	}
	if _, clusterWide := object.(*v1alpha1.ZoneReservation); !clusterWide && o.GetNamespace() == "" {
		o.SetNamespace(p.namespace)
	}
	o.SetUID(p.uid())
	switch o := o.(type) {
	case *corev1.Pod:
		return p.pods("", "Pod", o, &corev1.PodTemplateSpec{ObjectMeta: o.ObjectMeta, Spec: o.Spec}, 1, nil)
	case *appsv1.Deployment:
		template := o.Spec.Template.DeepCopy()
		metav1.SetMetaDataLabel(&template.ObjectMeta, appsv1.DefaultDeploymentUniqueLabelKey, "simulated")
		return p.deployment(o, template)
	case *appsv1.ReplicaSet:
		return p.replicas("apps/v1", "ReplicaSet", o, &o.Spec.Template, &o.Spec.Replicas, nil)
	case *appsv1.StatefulSet:
		return p.replicas("apps/v1", "StatefulSet", o, &o.Spec.Template, &o.Spec.Replicas, o.Spec.VolumeClaimTemplates)
	case *corev1.ReplicationController:
		if o.Spec.Template == nil {
			return fmt.Errorf("ReplicationController %s: spec.template is missing", o.Name)
		}
		return p.replicas("v1", "ReplicationController", o, o.Spec.Template, &o.Spec.Replicas, nil)
	case *batchv1.Job:
		n := ptr.Deref(o.Spec.Parallelism, 1)
		if o.Spec.Completions != nil {
			n = min(n, *o.Spec.Completions)
		}
		p.workload.others = append(p.workload.others, o)
		return p.pods("batch/v1", "Job", o, &o.Spec.Template, n, nil)
	case *schedv1alpha1.PodGroup:
		for i := range p.copies {
			group := o.DeepCopy()
			group.Name, group.UID = copyName(o.Name, i, p.copies), p.uid()
			p.workload.others = append(p.workload.others, group)
		}
	case *v1alpha1.ZoneSpreadPolicy, *v1alpha1.ZoneReservation, *corev1.PersistentVolumeClaim:
		o.SetGeneration(1)
		p.workload.others = append(p.workload.others, o)
	case *corev1.Service:
		there := func(s *corev1.Service) bool { return s.Namespace == o.Namespace && s.Name == o.Name }
		if !slices.ContainsFunc(snapshot.List[*corev1.Service](p.snapshot), there) { // else the cluster's own counts
			p.workload.others = append(p.workload.others, o)
		}
	default:
		p.leaveOut(gvk.Kind)
	}
	return nil
}

// leaveOut notes a kind that is no part of the simulation.
func (p *parser) leaveOut(kind string) {
	if note := "the file's objects of kind " + kind + " are left out"; !slices.Contains(p.workload.leftOut, note) {
		p.workload.leftOut = append(p.workload.leftOut, note)
	}
}

// deployment adds a Deployment, and the ReplicaSet that its controller would make, with what that writes on it.
func (p *parser) deployment(d *appsv1.Deployment, template *corev1.PodTemplateSpec) error {
	n := ptr.Deref(d.Spec.Replicas, 1)
	d.Spec.Replicas = ptr.To(int32(min(int64(n)*int64(p.copies), maxPods))) //nolint:gosec // bounded
	p.workload.others = append(p.workload.others, d)
	set := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: d.Namespace, Name: d.Name + "-simulated", UID: p.uid(), Labels: template.Labels,
			Annotations:     map[string]string{"deployment.kubernetes.io/desired-replicas": strconv.Itoa(int(*d.Spec.Replicas))},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment"))},
		},
		Spec: appsv1.ReplicaSetSpec{Replicas: &n, Selector: d.Spec.Selector, Template: *template},
	}
	return p.replicas("apps/v1", "ReplicaSet", set, template, &set.Spec.Replicas, nil)
}

// replicas adds a workload with its replicas multiplied.
func (p *parser) replicas(apiVersion, kind string, over client.Object, template *corev1.PodTemplateSpec, replicas **int32, claims []corev1.PersistentVolumeClaim) error {
	n := ptr.Deref(*replicas, 1)
	*replicas = ptr.To(int32(min(int64(n)*int64(p.copies), maxPods))) //nolint:gosec // bounded
	p.workload.others = append(p.workload.others, over)
	return p.pods(apiVersion, kind, over, template, n, claims)
}

// pods makes the pods of a workload. Those of a Pod, which has no apiVersion here, have no controller.
func (p *parser) pods(
	apiVersion, kind string, over client.Object, template *corev1.PodTemplateSpec, replicas int32, claims []corev1.PersistentVolumeClaim,
) error {
	title := kind + " " + over.GetName()
	if above := metav1.GetControllerOf(over); above != nil { // the file has that one
		title = above.Kind + " " + above.Name
	}
	if replicas < 0 {
		return fmt.Errorf("%s: spec.replicas is %d, must not be negative", title, replicas)
	}
	if len(p.workload.Pods)+int(replicas)*p.copies > maxPods {
		return fmt.Errorf("%s: more than %d pods in all", title, maxPods)
	}
	priority, err := p.priority(template)
	if err != nil {
		return fmt.Errorf("%s: %w", title, err)
	}
	for i := range p.copies {
		for range replicas {
			p.serial++
			pod := &corev1.Pod{ObjectMeta: *template.ObjectMeta.DeepCopy(), Spec: *template.Spec.DeepCopy()}
			pod.Name, pod.Namespace, pod.UID = fmt.Sprintf("%s-simulated-%d", strings.TrimSuffix(over.GetName(), "-simulated"), p.serial), over.GetNamespace(), p.uid()
			pod.Spec.NodeName, pod.Spec.Priority = "", priority
			pod.Spec.SchedulerName = cmp.Or(pod.Spec.SchedulerName, corev1.DefaultSchedulerName)
			// As the API server does: missing requests are set to the limits.
			apiv1.SetObjectDefaults_Pod(pod)
			if group := pod.Labels[schedv1alpha1.PodGroupLabel]; group != "" {
				pod.Labels[schedv1alpha1.PodGroupLabel] = copyName(group, i, p.copies)
			}
			pod.OwnerReferences = nil
			if apiVersion != "" {
				pod.OwnerReferences = []metav1.OwnerReference{{
					APIVersion: apiVersion, Kind: kind, Name: over.GetName(), UID: over.GetUID(), Controller: ptr.To(true),
				}}
			}
			p.claim(pod, claims)
			p.workload.Pods = append(p.workload.Pods, pod)
		}
	}
	return nil
}

// claim makes the claims of a StatefulSet's pod.
func (p *parser) claim(pod *corev1.Pod, templates []corev1.PersistentVolumeClaim) {
	for i := range templates {
		claim := templates[i].DeepCopy()
		claim.Name, claim.Namespace, claim.UID = templates[i].Name+"-"+pod.Name, pod.Namespace, p.uid()
		p.workload.others = append(p.workload.others, claim)
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: templates[i].Name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name},
		}})
	}
}

// priority sets the priority that the API server would give a pod.
func (p *parser) priority(template *corev1.PodTemplateSpec) (*int32, error) {
	if template.Spec.Priority != nil {
		return template.Spec.Priority, nil
	}
	name := template.Spec.PriorityClassName
	for _, class := range snapshot.List[*schedulingv1.PriorityClass](p.snapshot) {
		if class.Name == name || name == "" && class.GlobalDefault {
			return &class.Value, nil
		}
	}
	resource, _ := kinds.ResourceOf(&schedulingv1.PriorityClass{})
	switch {
	case name == "":
		return ptr.To[int32](0), nil
	case !p.snapshot.Has(resource.String()):
		return nil, fmt.Errorf("priorityClassName %q: the cluster's PriorityClasses could not be read; with spec.priority in the file they are not needed", name)
	}
	return nil, fmt.Errorf("the cluster has no priorityClassName %q", name)
}

func copyName(name string, i, copies int) string {
	if copies == 1 {
		return name
	}
	return fmt.Sprintf("%s-%d", name, i+1)
}

func (p *parser) uid() types.UID {
	p.serial++
	return types.UID(fmt.Sprintf("added-%d", p.serial))
}
