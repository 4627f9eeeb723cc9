package simulate

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/utils/ptr"
	schedv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cmd/zonewise/snapshot"
	"zonewise.dev/cmd/zonewise/world"
)

// maxPods bounds what one workload adds: more than any cluster holds.
const maxPods = 500_000

// Workload is what a file of manifests would add to a cluster.
type Workload struct {
	Name string
	// Pods are the pods that the controllers would make.
	Pods []corev1.Pod
	// Objects are workloads, policies and PodGroups that bear on where the pods may go.
	Objects world.Objects
}

// ParseWorkload reads manifests: Pods, Deployments, ReplicaSets, StatefulSets, Jobs, ReplicationControllers, PodGroups
// and ZoneSpreadPolicies. Objects without a namespace are in the given one. Each workload comes copies times: of a
// workload that is no gang that is as many replicas more, with the labels that they have; a gang comes as so many
// gangs. classes has the values of the cluster's PriorityClasses, nil when they could not be read.
func ParseWorkload(name string, r io.Reader, namespace string, copies int, classes map[string]int32) (*Workload, error) {
	decoder := serializer.NewCodecFactory(snapshot.Scheme(), serializer.EnableStrict).UniversalDeserializer()
	p := &parser{workload: &Workload{Name: name}, namespace: namespace, copies: copies, classes: classes}
	documents := utilyaml.NewYAMLReader(bufio.NewReader(r))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if len(strings.TrimSpace(stripComments(string(document)))) == 0 {
			continue
		}
		object, _, err := decoder.Decode(document, nil, nil)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if err := p.take(object); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	if len(p.workload.Pods) == 0 {
		return nil, fmt.Errorf("%s: there is no Pod, Deployment, ReplicaSet, StatefulSet, Job or ReplicationController with replicas in it", name)
	}
	return p.workload, nil
}

func stripComments(document string) string {
	var out strings.Builder
	for line := range strings.Lines(document) {
		if trimmed := strings.TrimSpace(line); !strings.HasPrefix(trimmed, "#") && trimmed != "---" {
			out.WriteString(line)
		}
	}
	return out.String()
}

type parser struct {
	workload  *Workload
	namespace string
	copies    int
	classes   map[string]int32 // priority classes
	serial    int
}

func (p *parser) take(object runtime.Object) error {
	meta, ok := object.(metav1.Object)
	if !ok {
		return fmt.Errorf("%T is no single object", object)
	}
	if meta.GetNamespace() == "" {
		meta.SetNamespace(p.namespace)
	}
	meta.SetUID(p.uid())
	name, objects := meta.GetName(), &p.workload.Objects
	switch o := object.(type) {
	case *corev1.Pod:
		return p.pods("Pod", o, &corev1.PodTemplateSpec{ObjectMeta: o.ObjectMeta, Spec: o.Spec}, 1)
	case *appsv1.Deployment:
		n := ptr.Deref(o.Spec.Replicas, 1)
		o.Spec.Replicas = ptr.To(p.times(n))
		objects.Deployments = append(objects.Deployments, *o)
		template := o.Spec.Template.DeepCopy()
		metav1.SetMetaDataLabel(&template.ObjectMeta, appsv1.DefaultDeploymentUniqueLabelKey, "simulated")
		return p.pods("Deployment", o, template, n)
	case *appsv1.ReplicaSet:
		n := ptr.Deref(o.Spec.Replicas, 1)
		o.Spec.Replicas = ptr.To(p.times(n))
		objects.ReplicaSets = append(objects.ReplicaSets, *o)
		return p.pods("ReplicaSet", o, &o.Spec.Template, n)
	case *appsv1.StatefulSet:
		n := ptr.Deref(o.Spec.Replicas, 1)
		o.Spec.Replicas = ptr.To(p.times(n))
		objects.StatefulSets = append(objects.StatefulSets, *o)
		return p.pods("StatefulSet", o, &o.Spec.Template, n)
	case *corev1.ReplicationController:
		n := ptr.Deref(o.Spec.Replicas, 1)
		o.Spec.Replicas = ptr.To(p.times(n))
		objects.ReplicationControllers = append(objects.ReplicationControllers, *o)
		if o.Spec.Template == nil {
			return fmt.Errorf("ReplicationController %s: spec.template is missing", name)
		}
		return p.pods("ReplicationController", o, o.Spec.Template, n)
	case *batchv1.Job:
		n := ptr.Deref(o.Spec.Parallelism, 1)
		if o.Spec.Completions != nil {
			n = min(n, *o.Spec.Completions)
		}
		objects.Jobs = append(objects.Jobs, *o)
		return p.pods("Job", o, &o.Spec.Template, n)
	case *schedv1alpha1.PodGroup:
		for i := range p.copies {
			group := *o
			group.Name = copyName(name, i, p.copies)
			objects.PodGroups = append(objects.PodGroups, group)
		}
	case *v1alpha1.ZoneSpreadPolicy:
		objects.Policies = append(objects.Policies, *o)
	default:
		return fmt.Errorf("%s %s: this kind is not simulated", object.GetObjectKind().GroupVersionKind().Kind, name)
	}
	return nil
}

func (p *parser) times(replicas int32) int32 {
	return int32(min(int64(replicas)*int64(p.copies), maxPods))
} //nolint:gosec // bounded

// pods makes the pods of a workload.
func (p *parser) pods(kind string, over metav1.Object, template *corev1.PodTemplateSpec, replicas int32) error {
	if replicas < 0 {
		return fmt.Errorf("%s %s: spec.replicas is %d, must not be negative", kind, over.GetName(), replicas)
	}
	if len(p.workload.Pods)+int(replicas)*p.copies > maxPods {
		return fmt.Errorf("%s %s: more than %d pods in all", kind, over.GetName(), maxPods)
	}
	priority, known := p.classes[template.Spec.PriorityClassName]
	if template.Spec.PriorityClassName != "" && !known && template.Spec.Priority == nil {
		if p.classes == nil {
			return fmt.Errorf("%s %s: priorityClassName %q: the cluster's PriorityClasses could not be read; with spec.priority in the file they are not needed",
				kind, over.GetName(), template.Spec.PriorityClassName)
		}
		return fmt.Errorf("%s %s: the cluster has no priorityClassName %q", kind, over.GetName(), template.Spec.PriorityClassName)
	}
	for i := range p.copies {
		for range replicas {
			p.serial++
			pod := corev1.Pod{ObjectMeta: *template.ObjectMeta.DeepCopy(), Spec: template.Spec}
			pod.Name, pod.Namespace, pod.UID = fmt.Sprintf("%s-simulated-%d", over.GetName(), p.serial), over.GetNamespace(), p.uid()
			pod.Spec.NodeName = ""
			if known && template.Spec.Priority == nil {
				pod.Spec.Priority = &priority
			}
			if group := pod.Labels[schedv1alpha1.PodGroupLabel]; group != "" {
				pod.Labels[schedv1alpha1.PodGroupLabel] = copyName(group, i, p.copies)
			}
			pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: kind, Name: over.GetName(), UID: over.GetUID(), Controller: ptr.To(true)}}
			p.workload.Pods = append(p.workload.Pods, pod)
		}
	}
	return nil
}

func copyName(name string, i, copies int) string {
	if copies == 1 {
		return name
	}
	return fmt.Sprintf("%s-%d", name, i+1)
}

func (p *parser) uid() types.UID {
	p.serial++
	return types.UID(fmt.Sprintf("simulated-%d", p.serial))
}
