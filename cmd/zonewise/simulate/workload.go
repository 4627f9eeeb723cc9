package simulate

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/klog/v2"
	daemoncontroller "k8s.io/kubernetes/pkg/controller/daemon"
	daemonutil "k8s.io/kubernetes/pkg/controller/daemon/util"
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

// Workload is what a file of manifests would change in a cluster.
type Workload struct {
	Name string
	// Pods are the pods that the controllers would make.
	Pods []*corev1.Pod
	// LeftOut says in a line each which objects of the file are no part of the simulation.
	LeftOut []string

	// others are new objects that affect where the pods may go, changed those that the cluster has already, as the file
	// has them.
	others, changed []client.Object
	// removed are the cluster's pods that its controllers would delete.
	removed []*corev1.Pod
	// daemons are new DaemonSets, which have a pod on each node that they want, and agents their pods as the API server
	// makes them, but for the node.
	daemons []*appsv1.DaemonSet
	agents  []*corev1.Pod
}

// objects returns copies of all new objects.
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

// ParseWorkload reads manifests as they are applied to a cluster: workloads, and what decides where their pods may go.
// Other kinds are left out. Objects without a namespace are in the given one. A workload that the cluster has already
// is changed. Each is multiplied by copies: one that is not a gang gets more replicas with the same labels; a gang
// becomes several gangs. A server, if it is not nil, makes one pod of each template by a dry run; otherwise upstream's
// admission plugins do.
func ParseWorkload(
	ctx context.Context, name string, r io.Reader, namespace string, copies int, s *snapshot.Snapshot, server client.Client,
) (*Workload, error) {
	p := &parser{ctx: ctx, workload: &Workload{Name: name}, namespace: namespace, copies: copies, cluster: newExisting(s), now: s.TakenAt, admission: newAdmission(s, server)}
	documents := utilyaml.NewYAMLReader(bufio.NewReader(r))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = p.decodeDocument(document)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	if !slices.ContainsFunc(p.objects, makesPods) {
		return nil, fmt.Errorf("%s: there is no Pod, Deployment, ReplicaSet, StatefulSet, DaemonSet, Job or ReplicationController in it", name)
	}
	for _, workloads := range []bool{false, true} { // what changes pods comes before them, in whatever order the file has it
		for _, obj := range p.objects {
			if makesPods(obj) != workloads {
				continue
			}
			if err := p.applyObject(obj); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	if len(p.workload.Pods)+len(p.workload.daemons)+len(p.workload.removed)+len(p.workload.changed)+len(p.workload.others) == 0 {
		p.leaveOut("nothing in the file differs from the cluster")
	}
	return p.workload, nil
}

type parser struct {
	ctx       context.Context //nolint:containedctx // of one call of ParseWorkload
	workload  *Workload
	namespace string
	copies    int
	cluster   *existing
	admission *admission
	now       time.Time // of the snapshot
	// objects are those of the file, decoded.
	objects []client.Object
	serial  int
}

func makesPods(obj client.Object) bool {
	switch obj.(type) {
	case *corev1.Pod, *appsv1.Deployment, *appsv1.ReplicaSet, *appsv1.StatefulSet, *appsv1.DaemonSet, *batchv1.Job, *corev1.ReplicationController:
		return true
	}
	return false
}

// decidesPlaces reports whether objects of a kind affect where pods may go, or what an API server makes of pods.
func decidesPlaces(obj runtime.Object) bool {
	switch obj.(type) {
	case *corev1.Namespace, *corev1.Service, *corev1.LimitRange, *nodev1.RuntimeClass, *schedulingv1.PriorityClass, *policyv1.PodDisruptionBudget,
		*storagev1.StorageClass, *storagev1.CSIDriver, *corev1.PersistentVolume, *corev1.PersistentVolumeClaim,
		*resourcev1.DeviceClass, *resourcev1.ResourceClaim, *resourcev1.ResourceClaimTemplate,
		*schedv1alpha1.PodGroup, *kinds.NativePodGroup, *v1alpha1.ZoneSpreadPolicy, *v1alpha1.ZoneReservation:
		return true
	}
	return false
}

var decoder = serializer.NewCodecFactory(kinds.Scheme, serializer.EnableStrict).UniversalDeserializer()

// decodeDocument takes the objects of one document. Those that decide nothing may be of any form.
func (p *parser) decodeDocument(document []byte) error {
	document, err := yaml.YAMLToJSONStrict(document)
	if err != nil || string(document) == "null" { // comments alone
		return err
	}
	var meta struct {
		metav1.TypeMeta `json:",inline"`

		Items []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(document, &meta); err != nil {
		return err
	}
	gvk := meta.GroupVersionKind()
	if gvk.Kind == "List" && gvk.Group == "" {
		for _, item := range meta.Items {
			if err := p.decodeDocument(item); err != nil {
				return err
			}
		}
		return nil
	}
	if gvk.Kind != "" && gvk.Version != "" && !isWanted(gvk) {
		p.leaveOut("objects of kind " + gvk.Kind + " are left out")
		return nil
	}
	object, _, err := decoder.Decode(document, nil, nil)
	if err != nil {
		return err
	}
	p.objects = append(p.objects, object.(client.Object)) //nolint:forcetypeassert // as the example
	return nil
}

// isWanted reports whether objects of a kind are part of a simulation.
func isWanted(gvk schema.GroupVersionKind) bool {
	example, err := kinds.Scheme.New(gvk)
	obj, ok := example.(client.Object)
	return err == nil && ok && (makesPods(obj) || decidesPlaces(obj))
}

// leaveOut notes what is no part of the simulation.
func (p *parser) leaveOut(words string) {
	if !slices.Contains(p.workload.LeftOut, words) {
		p.workload.LeftOut = append(p.workload.LeftOut, words)
	}
}

// clusterWide has the kinds of decidesPlaces that have no namespace.
func clusterWide(obj client.Object) bool {
	switch obj.(type) {
	case *corev1.Namespace, *nodev1.RuntimeClass, *schedulingv1.PriorityClass, *storagev1.StorageClass, *storagev1.CSIDriver, *corev1.PersistentVolume,
		*resourcev1.DeviceClass, *v1alpha1.ZoneReservation:
		return true
	}
	return false
}

// applyObject applies an object of the file.
func (p *parser) applyObject(obj client.Object) error {
	if !clusterWide(obj) && obj.GetNamespace() == "" {
		obj.SetNamespace(p.namespace)
	}
	obj.SetUID(p.nextUID())
	if obj.GetName() == "" && obj.GetGenerateName() != "" { // the API server would add five letters
		obj.SetName(fmt.Sprintf("%s%05d", obj.GetGenerateName(), p.serial))
	}
	switch o := obj.(type) {
	case *corev1.Pod:
		if p.leaveAsItIs(o) {
			return nil
		}
		return p.makePods(&podController{object: o, template: &corev1.PodTemplateSpec{ObjectMeta: o.ObjectMeta, Spec: o.Spec}, replicas: 1}, nil)
	case *batchv1.Job:
		if p.leaveAsItIs(o) {
			return nil
		}
		n := ptr.Deref(o.Spec.Parallelism, 1)
		if o.Spec.Completions != nil {
			n = min(n, *o.Spec.Completions)
		}
		if err := p.applyJobGroup(o); err != nil {
			return err
		}
		p.workload.others = append(p.workload.others, o)
		return p.makePods(&podController{apiVersion: "batch/v1", kind: "Job", object: o, template: &o.Spec.Template, replicas: n}, nil)
	case *appsv1.Deployment:
		return p.applyDeployment(o)
	case *appsv1.DaemonSet:
		if p.leaveAsItIs(o) {
			return nil
		}
		return p.applyDaemonSet(o)
	case *appsv1.ReplicaSet:
		return p.setReplicas(&podController{apiVersion: "apps/v1", kind: "ReplicaSet", object: o, template: &o.Spec.Template}, &o.Spec.Replicas)
	case *appsv1.StatefulSet:
		return p.setReplicas(&podController{apiVersion: "apps/v1", kind: "StatefulSet", object: o, template: &o.Spec.Template, claims: o.Spec.VolumeClaimTemplates}, &o.Spec.Replicas)
	case *corev1.ReplicationController:
		if o.Spec.Template == nil {
			return fmt.Errorf("ReplicationController %s: spec.template is missing", o.Name)
		}
		return p.setReplicas(&podController{apiVersion: "v1", kind: "ReplicationController", object: o, template: o.Spec.Template}, &o.Spec.Replicas)
	case *corev1.LimitRange, *nodev1.RuntimeClass:
		p.admission.addRule(o)
		return nil
	case *schedulingv1.PriorityClass:
		p.admission.addRule(o)
	case *kinds.NativePodGroup:
		return p.applyNativeGroup(o)
	case *schedv1alpha1.PodGroup:
		if p.copies > 1 {
			for i := range p.copies {
				group := o.DeepCopy()
				group.Name, group.UID = copyName(o.Name, i, p.copies), p.nextUID()
				p.workload.others = append(p.workload.others, group)
			}
			return nil
		}
	}
	p.putObject(obj)
	return nil
}

// leaveAsItIs notes an object that the cluster has, and whose pods nobody can change.
func (p *parser) leaveAsItIs(obj client.Object) bool {
	if p.cluster.findLike(obj) == nil {
		return false
	}
	_, gvk := kinds.ResourceOf(obj)
	p.leaveOut(fmt.Sprintf("%s %s/%s is there already, and stays as it is", gvk.Kind, obj.GetNamespace(), obj.GetName()))
	return true
}

// applyDeployment adds a Deployment, and the ReplicaSet that its controller would make, with what that writes on it. If
// the cluster has the Deployment and its template does not change, its ReplicaSet is scaled. Otherwise the pods of the
// old ones go.
func (p *parser) applyDeployment(d *appsv1.Deployment) error {
	template := d.Spec.Template.DeepCopy()
	metav1.SetMetaDataLabel(&template.ObjectMeta, appsv1.DefaultDeploymentUniqueLabelKey, "simulated")
	now, _ := p.cluster.findLike(d).(*appsv1.Deployment)
	var old []*appsv1.ReplicaSet
	if now != nil {
		if d.Spec.Replicas == nil { // somebody else sets them
			d.Spec.Replicas = now.Spec.Replicas
		}
		old = p.cluster.setsOf(now)
	}
	n := ptr.Deref(d.Spec.Replicas, 1)
	total := int32(min(int64(n)*int64(p.copies), maxPods)) //nolint:gosec // bounded
	d.Spec.Replicas = &total
	p.putObject(d)
	if len(old) > 0 && sameTemplate(&now.Spec.Template, &d.Spec.Template) {
		set := old[0].DeepCopy()
		set.Spec.Replicas = &n
		metav1.SetMetaDataAnnotation(&set.ObjectMeta, desiredReplicas, strconv.Itoa(int(total)))
		return p.setReplicas(&podController{apiVersion: "apps/v1", kind: "ReplicaSet", object: set, template: &set.Spec.Template}, &set.Spec.Replicas)
	}
	for _, set := range old {
		p.workload.removed = append(p.workload.removed, p.cluster.podsOf(set)...)
	}
	set := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: d.Namespace, Name: d.Name + "-simulated", UID: p.nextUID(), Labels: template.Labels,
			Annotations:     map[string]string{desiredReplicas: strconv.Itoa(int(total))},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment"))},
		},
		Spec: appsv1.ReplicaSetSpec{Replicas: &n, Selector: d.Spec.Selector, Template: *template},
	}
	return p.setReplicas(&podController{apiVersion: "apps/v1", kind: "ReplicaSet", object: set, template: template}, &set.Spec.Replicas)
}

const desiredReplicas = "deployment.kubernetes.io/desired-replicas"

// setReplicas adds a workload with its replicas multiplied, or changes the one of the cluster: its pods stay if their
// template does, or else are replaced.
func (p *parser) setReplicas(c *podController, replicas **int32) error {
	var keep []*corev1.Pod
	if now := p.cluster.findLike(c.object); now != nil {
		template, size := templateOf(now)
		if *replicas == nil {
			*replicas = size
		}
		c.object.SetUID(now.GetUID())
		keep = p.cluster.podsOf(now)
		// A ReplicaSet and a ReplicationController leave the pods that they have as these are.
		if _, ordered := c.object.(*appsv1.StatefulSet); ordered && !sameTemplate(template, c.template) {
			p.workload.removed = append(p.workload.removed, keep...)
			keep = nil
		}
	}
	c.replicas = ptr.Deref(*replicas, 1)
	*replicas = ptr.To(int32(min(int64(c.replicas)*int64(p.copies), maxPods))) //nolint:gosec // bounded
	p.putObject(c.object)
	return p.makePods(c, keep)
}

// podController is an object that makes pods; a Pod, which has no apiVersion here, makes itself.
type podController struct {
	apiVersion, kind string
	object           client.Object
	template         *corev1.PodTemplateSpec
	replicas         int32
	claims           []corev1.PersistentVolumeClaim
}

func (c *podController) title() string {
	if above := metav1.GetControllerOf(c.object); above != nil { // the file has that one
		return above.Kind + " " + above.Name
	}
	return cmp.Or(c.kind, "Pod") + " " + c.object.GetName()
}

// makePods makes the pods of a workload beside those that the cluster has, or removes those that are too many.
func (p *parser) makePods(c *podController, keep []*corev1.Pod) error {
	if c.replicas < 0 {
		return fmt.Errorf("%s: spec.replicas is %d, must not be negative", c.title(), c.replicas)
	}
	if len(p.workload.Pods)+int(c.replicas)*p.copies > maxPods {
		return fmt.Errorf("%s: more than %d pods in all", c.title(), maxPods)
	}
	wanted := int(c.replicas) * p.copies
	if surplus := len(keep) - wanted; surplus > 0 {
		_, ordered := c.object.(*appsv1.StatefulSet)
		p.workload.removed = append(p.workload.removed, firstToGo(keep, ordered, p.now)[:surplus]...)
		return nil
	}
	if wanted == len(keep) {
		return nil
	}
	model, err := p.admittedPod(c.object, c.template)
	if err != nil {
		return fmt.Errorf("%s: %w", c.title(), err)
	}
	numbered := c.kind == "StatefulSet" && p.cluster.findLike(c.object) != nil
	names, ordinal := namesOf(keep), 0
	for i := len(keep); i < wanted; i++ {
		p.serial++
		pod := model.DeepCopy()
		pod.Name, pod.UID = fmt.Sprintf("%s-simulated-%d", strings.TrimSuffix(c.object.GetName(), "-simulated"), p.serial), p.nextUID()
		if numbered {
			for pod.Name = fmt.Sprintf("%s-%d", c.object.GetName(), ordinal); slices.Contains(names, pod.Name); ordinal++ {
				pod.Name = fmt.Sprintf("%s-%d", c.object.GetName(), ordinal+1)
			}
			ordinal++
		}
		if group := pod.Labels[schedv1alpha1.PodGroupLabel]; group != "" {
			pod.Labels[schedv1alpha1.PodGroupLabel] = copyName(group, i/max(1, int(c.replicas)), p.copies)
		}
		if group := pod.Spec.SchedulingGroup; group != nil && group.PodGroupName != nil {
			group.PodGroupName = ptr.To(copyName(*group.PodGroupName, i/max(1, int(c.replicas)), p.copies))
		}
		pod.OwnerReferences = nil
		if c.apiVersion != "" {
			pod.OwnerReferences = []metav1.OwnerReference{{
				APIVersion: c.apiVersion, Kind: c.kind, Name: c.object.GetName(), UID: c.object.GetUID(), Controller: ptr.To(true),
			}}
		}
		p.makeClaims(pod, c.claims)
		p.workload.Pods = append(p.workload.Pods, pod)
	}
	return nil
}

// admittedPod returns a pod of a template as the API server makes it.
func (p *parser) admittedPod(owner client.Object, template *corev1.PodTemplateSpec) (*corev1.Pod, error) {
	pod := &corev1.Pod{ObjectMeta: *template.ObjectMeta.DeepCopy(), Spec: *template.Spec.DeepCopy()}
	pod.Namespace, pod.Name, pod.GenerateName, pod.Spec.NodeName = owner.GetNamespace(), owner.GetName(), "", ""
	return p.admission.admitPod(p.ctx, pod)
}

// applyDaemonSet adds a DaemonSet, with the tolerations that its controller gives its pods.
func (p *parser) applyDaemonSet(o *appsv1.DaemonSet) error {
	daemonutil.AddOrUpdateDaemonPodTolerations(&o.Spec.Template.Spec)
	agent, err := p.admittedPod(o, &o.Spec.Template)
	if err != nil {
		return fmt.Errorf("DaemonSet %s: %w", o.Name, err)
	}
	agent.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(o, appsv1.SchemeGroupVersion.WithKind("DaemonSet"))}
	p.workload.daemons, p.workload.agents = append(p.workload.daemons, o), append(p.workload.agents, agent)
	p.putObject(o)
	return nil
}

// daemonPods returns the pods that the controllers of new DaemonSets make for nodes.
func (w *Workload) daemonPods(nodes []*corev1.Node) []client.Object {
	var out []client.Object
	for i, daemon := range w.daemons {
		for _, node := range nodes {
			if should, _ := daemoncontroller.NodeShouldRunDaemonPod(klog.Logger{}, node, daemon); !should {
				continue
			}
			pod := w.agents[i].DeepCopy()
			pod.Name, pod.UID = daemon.Name+"-"+node.Name, types.UID(string(daemon.UID)+"-"+node.Name)
			pod.Spec.Affinity = daemonutil.ReplaceDaemonSetPodNodeNameNodeAffinity(pod.Spec.Affinity, node.Name)
			out = append(out, pod)
		}
	}
	return out
}

// makeClaims makes the claims of a StatefulSet's pod that the cluster does not have.
func (p *parser) makeClaims(pod *corev1.Pod, templates []corev1.PersistentVolumeClaim) {
	for i := range templates {
		claim := templates[i].DeepCopy()
		claim.Name, claim.Namespace, claim.UID = templates[i].Name+"-"+pod.Name, pod.Namespace, p.nextUID()
		if p.cluster.findLike(claim) == nil {
			p.workload.others = append(p.workload.others, claim)
		}
		pod.Spec.Volumes = slices.DeleteFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == templates[i].Name })
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: templates[i].Name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name},
		}})
	}
}

func copyName(name string, i, copies int) string {
	if copies == 1 {
		return name
	}
	return fmt.Sprintf("%s-%d", name, i+1)
}

func (p *parser) nextUID() types.UID {
	p.serial++
	return types.UID(fmt.Sprintf("added-%d", p.serial))
}
