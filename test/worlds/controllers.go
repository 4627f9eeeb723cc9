package worlds

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

const (
	// grace is how long a pod terminates.
	grace = 2 * time.Second
	// evictedAfter is how long pods stay on a node that does not answer, or is gone.
	evictedAfter = 40 * time.Second
	// readyAfter is how long a pod that is bound needs to become ready.
	readyAfter = 20 * time.Second
	// keptFor is how long a pod that has succeeded stays.
	keptFor = time.Minute
)

// workload is a Workload that runs.
type workload struct {
	Workload
	revision int
	started  int // replicas at the start
	created  int
	done     int // pods that have succeeded
	// disturbed means that members have been lost once they were bound, or that binds fail: the gang may be bound in
	// part.
	disturbed bool
	// bindsFail means that some pods cannot be bound at all.
	bindsFail bool
	owners    []string // of which objects there are
}

func (p *player) run(spec Workload) {
	if p.workloads[spec.Name] != nil || spec.Kind == NativeGang && !p.world.Native {
		return
	}
	p.changed()
	w := &workload{Workload: spec, started: spec.Replicas}
	p.workloads[w.Name] = w
	if w.Volume != "" {
		claim, volume := w.claim()
		if volume != nil {
			p.put(volume, false)
		}
		p.put(claim, false)
	}
	switch w.Kind {
	case Gang:
		group := w.podGroup()
		group.CreationTimestamp = metav1.NewTime(time.Now())
		p.custom.Put(group)
	case NativeGang:
		if _, err := p.server.Client.SchedulingV1beta1().PodGroups(metav1.NamespaceDefault).Create(context.Background(), w.nativeGroup(), metav1.CreateOptions{}); err != nil {
			panic(fmt.Sprintf("worlds: %v", err))
		}
	}
	p.writeOwners(w)
}

func (p *player) stopWorkload(name string) {
	w := p.workloads[name]
	if w == nil {
		return
	}
	p.changed()
	delete(p.workloads, name)
	for _, pod := range p.listPods() {
		if pod.Labels[workloadLabel] == name {
			p.deletePod(&pod)
		}
	}
	switch w.Kind {
	case Gang:
		p.custom.Delete(w.podGroup())
	case NativeGang:
		if err := p.server.Client.SchedulingV1beta1().PodGroups(metav1.NamespaceDefault).Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
			panic(fmt.Sprintf("worlds: %v", err))
		}
	}
	for _, owner := range w.owners {
		if err := p.server.Client.Tracker().Delete(w.ownerResource(), metav1.NamespaceDefault, owner); err != nil {
			panic(fmt.Sprintf("worlds: %v", err))
		}
	}
}

func (w *workload) ownerName() string {
	if w.Kind == Deployment {
		return fmt.Sprintf("%s-rs%d", w.Name, w.revision)
	}
	return w.Name
}

func (w *workload) ownerResource() schema.GroupVersionResource {
	switch w.Kind {
	case Deployment:
		return appsv1.SchemeGroupVersion.WithResource("replicasets")
	case StatefulSet:
		return appsv1.SchemeGroupVersion.WithResource("statefulsets")
	default:
		return batchv1.SchemeGroupVersion.WithResource("jobs")
	}
}

// owner returns the reference to the object that a pod of the workload belongs to.
func (w *workload) owner() *metav1.OwnerReference {
	ref := &metav1.OwnerReference{Name: w.ownerName(), UID: types.UID("uid-" + w.ownerName()), Controller: ptr.To(true)}
	switch w.Kind {
	case Deployment:
		ref.APIVersion, ref.Kind = "apps/v1", "ReplicaSet"
	case StatefulSet:
		ref.APIVersion, ref.Kind = "apps/v1", "StatefulSet"
	default:
		ref.APIVersion, ref.Kind = "batch/v1", "Job"
	}
	return ref
}

// writeOwners stores the objects that the scheduler reads of a workload.
func (p *player) writeOwners(w *workload) {
	p.changed()
	name := w.ownerName()
	meta := metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name, UID: types.UID("uid-" + name)}
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{workloadLabel: w.Name}}
	var object runtime.Object
	switch w.Kind {
	case Deployment:
		meta.Annotations = map[string]string{"deployment.kubernetes.io/desired-replicas": strconv.Itoa(w.Replicas)}
		object = &appsv1.ReplicaSet{ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Replicas: ptr.To(int32(w.Replicas)), Selector: selector}}
	case StatefulSet:
		object = &appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Replicas: ptr.To(int32(w.Replicas)), Selector: selector}}
	default:
		job := &batchv1.Job{ObjectMeta: meta, Spec: batchv1.JobSpec{Parallelism: ptr.To(int32(w.Replicas)), Selector: selector}}
		if object = job; !w.replacesAtOnce() {
			job.Spec.PodReplacementPolicy = ptr.To(batchv1.Failed)
		}
	}
	p.server.SetVersion(object)
	tracker := p.server.Client.Tracker()
	var err error
	if slices.Contains(w.owners, name) {
		err = tracker.Update(w.ownerResource(), object, metav1.NamespaceDefault)
	} else {
		w.owners = append(w.owners, name)
		err = tracker.Create(w.ownerResource(), object, metav1.NamespaceDefault)
	}
	if err != nil {
		panic(fmt.Sprintf("worlds: %v", err))
	}
}

func finished(pod *v1.Pod) bool {
	return pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
}

// actAsKubelets has pods succeed, or be refused, and those that terminate go.
func (p *player) actAsKubelets() {
	now := time.Now()
	for _, pod := range p.listPods() {
		w := p.workloads[pod.Labels[workloadLabel]]
		at := p.nodes[pod.Spec.NodeName]
		switch {
		case pod.Spec.NodeName != "" && at == nil: // its node is gone
			if since := p.noteLeaving(&pod); now.Sub(since) >= grace { // also if no kubelet has ended it
				p.markDisturbed(w)
				p.finishPod(&pod)
			}
		case pod.DeletionTimestamp != nil:
			since := p.noteLeaving(&pod)
			ends := !p.stuck[pod.UID]
			if at != nil && at.lost {
				ends = at.outOfService && !w.replacesAtOnce()
			}
			if ends && (at == nil || now.Sub(since) >= grace) {
				p.finishPod(&pod)
			}
		case at != nil && at.lost:
			if now.Sub(p.noteLeaving(&pod)) >= evictedAfter {
				p.deletePod(&pod)
			}
		case finished(&pod):
			if now.Sub(p.boundAt[pod.UID]) >= w.runs()+keptFor {
				p.finishPod(&pod)
			}
		case at != nil && p.boundAt[pod.UID].IsZero() && p.givenBlindly(&pod) && p.startedOn(at)+requestOf(&pod) > at.CPU:
			p.boundAt[pod.UID] = now
			p.markDisturbed(w)
			p.editStatus(&pod, func(status *v1.PodStatus) { status.Phase = v1.PodFailed })
		case at != nil:
			delete(p.leaving, pod.UID)
			if p.boundAt[pod.UID].IsZero() {
				p.boundAt[pod.UID] = now
			}
			if w != nil && w.Runs > 0 && now.Sub(p.boundAt[pod.UID]) >= w.Runs {
				w.done++
				w.disturbed = true
				p.succeeded = now
				p.noteEnded(&pod)
				p.editStatus(&pod, func(status *v1.PodStatus) { status.Phase = v1.PodSucceeded })
			}
		}
	}
}

// startedOn returns how many CPUs the pods of a node ask for that its kubelet has started.
func (p *player) startedOn(n *node) (cpus int) {
	for _, pod := range p.listPods() {
		if pod.Spec.NodeName == n.Name && !p.boundAt[pod.UID].IsZero() && !finished(&pod) {
			cpus += requestOf(&pod)
		}
	}
	return cpus
}

// reportStarts has kubelets say when their pods have started: by that victims are chosen, in the cluster and in a copy.
func (p *player) reportStarts() {
	for _, pod := range p.listPods() {
		if at := p.boundAt[pod.UID]; !at.IsZero() && pod.Status.StartTime == nil {
			p.editStatus(&pod, func(status *v1.PodStatus) { status.StartTime = ptr.To(metav1.NewTime(at).Rfc3339Copy()) })
		}
	}
}

// editStatus has a kubelet write the status of a pod.
func (p *player) editStatus(pod *v1.Pod, edit func(*v1.PodStatus)) {
	if err := p.server.EditPod(pod.Namespace, pod.Name, func(pod *v1.Pod) { edit(&pod.Status) }); err != nil {
		panic(fmt.Sprintf("worlds: %v", err))
	}
}

func (w *workload) runs() time.Duration {
	if w == nil {
		return 0
	}
	return w.Runs
}

// replacesAtOnce reports whether a pod that terminates is replaced before it has gone.
func (w *workload) replacesAtOnce() bool { return w != nil && (w.Kind == Deployment || w.Kind == Job) }

func (p *player) markDisturbed(w *workload) {
	if w != nil {
		w.disturbed = true
	}
}

func (p *player) noteLeaving(pod *v1.Pod) time.Time {
	if p.leaving[pod.UID].IsZero() {
		p.leaving[pod.UID] = time.Now()
	}
	return p.leaving[pod.UID]
}

func (p *player) finishPod(pod *v1.Pod) {
	p.noteEnded(pod)
	if err := p.server.Client.Tracker().Delete(podResource, pod.Namespace, pod.Name); err != nil {
		panic(fmt.Sprintf("worlds: %v", err))
	}
	delete(p.leaving, pod.UID)
	delete(p.boundAt, pod.UID)
	delete(p.stuck, pod.UID)
}

// noteEnded notes that a pod leaves its node, if it has one.
func (p *player) noteEnded(pod *v1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if pod.Spec.NodeName != "" {
		p.endedAt[pod.Labels["app"]] = time.Now()
	}
}

// actAsControllers brings the pods of workloads in line with their specs. It reports whether it has done anything.
func (p *player) actAsControllers() (acted bool) {
	acted = p.keepClaims()
	pods := map[string][]v1.Pod{}
	for _, pod := range p.listPods() {
		pods[pod.Labels[workloadLabel]] = append(pods[pod.Labels[workloadLabel]], pod)
	}
	for _, name := range slices.Sorted(maps.Keys(p.workloads)) {
		w := p.workloads[name]
		switch w.Kind {
		case Deployment, Job:
			acted = p.keepReplicas(w, pods[name]) || acted
		default:
			acted = p.keepNumbered(w, pods[name]) || acted
		}
	}
	return acted
}

func (p *player) createPod(w *workload, name string) {
	p.changed()
	p.addClaimsFor(w, name)
	pod := w.pod(name)
	p.created++
	pod.UID = types.UID(fmt.Sprintf("%s-uid%d", name, p.created))
	pod.CreationTimestamp = metav1.Time{Time: time.Now().Add(time.Duration(p.created))}
	if _, err := p.server.Client.CoreV1().Pods(pod.Namespace).Create(context.Background(), pod, metav1.CreateOptions{}); err != nil {
		panic(fmt.Sprintf("worlds: %v", err))
	}
}

// keepReplicas is the controller of Deployments, with a surge of one and none unavailable, and of Jobs.
func (p *player) keepReplicas(w *workload, pods []v1.Pod) bool {
	var current, old []v1.Pod
	ready := 0
	for _, pod := range pods {
		if pod.DeletionTimestamp != nil || finished(&pod) {
			continue
		}
		if pod.Labels[revisionLabel] == strconv.Itoa(w.revision) {
			current = append(current, pod)
		} else {
			old = append(old, pod)
		}
		if bound := p.boundAt[pod.UID]; !bound.IsZero() && time.Since(bound) >= readyAfter {
			ready++
		}
	}
	surge := 0
	if len(old) > 0 {
		surge = 1
	}
	want := w.Replicas
	if w.Kind == Job {
		want = min(want, 2*w.started-w.done)
	}
	switch {
	case len(current) < want && len(current)+len(old) < want+surge:
		w.created++
		p.createPod(w, fmt.Sprintf("%s-%d", w.Name, w.created))
	case len(current) > max(want, 0):
		p.deletePod(leastValuable(current))
	case len(old) > 0 && (ready > want || leastValuable(old).Spec.NodeName == ""):
		p.deletePod(leastValuable(old))
	default:
		return false
	}
	return true
}

// leastValuable is the pod that is deleted first: one without a node, or the newest.
func leastValuable(pods []v1.Pod) *v1.Pod {
	worst := &pods[0]
	for i := range pods {
		pod := &pods[i]
		if a, b := pod.Spec.NodeName == "", worst.Spec.NodeName == ""; a != b {
			if a {
				worst = pod
			}
		} else if worst.CreationTimestamp.Before(&pod.CreationTimestamp) {
			worst = pod
		}
	}
	return worst
}

// keepNumbered is the controller of StatefulSets with parallel pods, and of the members of a gang.
func (p *player) keepNumbered(w *workload, pods []v1.Pod) (acted bool) {
	known := map[string]*v1.Pod{}
	for i := range pods {
		known[pods[i].Name] = &pods[i]
	}
	if w.gang() && w.done > 0 {
		return false // it has run
	}
	stale := false
	for i := w.Replicas - 1; i >= 0; i-- {
		pod := known[w.podName(i)]
		switch {
		case pod == nil:
			p.createPod(w, w.podName(i))
			acted = true
		case w.Kind == StatefulSet && pod.Labels[revisionLabel] != strconv.Itoa(w.revision) && !stale:
			stale = true // one at a time
			if pod.DeletionTimestamp == nil {
				p.deletePod(pod)
				acted = true
			}
		case pod.DeletionTimestamp != nil || pod.Spec.NodeName == "":
			stale = true
		}
		delete(known, w.podName(i))
	}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		if pod := known[name]; pod.DeletionTimestamp == nil {
			p.deletePod(pod)
			acted = true
		}
	}
	return acted
}
