package sim

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// This file stands for what happens to a cluster: nodes and pods come and go, and kubelets start pods. Controllers are
// in controllers.go, evictions in evict.go, volumes in volumes.go and devices in devices.go.

const (
	// stopTime is the longest that a pod takes to end after its deletion: longer than a scheduler takes to try what is
	// in its queue.
	stopTime = time.Minute
	// killTime is how long a pod without a grace period takes to end.
	killTime = 20 * time.Millisecond
)

// bindPod puts a pod on its node, and has it run.
func (s *Sim) bindPod(pod *v1.Pod, nodeName string) error {
	now := metav1.Time{Time: s.clock.Now().Truncate(time.Second)} // as the API server keeps it
	node, _ := get[*v1.Node](s.store, nodeName)
	bound, err := changeObject(s.store, keyOf(pod), func(pod *v1.Pod) error {
		pod.Spec.NodeName = nodeName
		if node != nil {
			pod.Labels = labelsOn(node, pod.Labels)
		}
		pod.Status.NominatedNodeName = ""
		pod.Status.Phase, pod.Status.StartTime = v1.PodRunning, &now
		pod.Status.Conditions = withTrue(pod.Status.Conditions, now, v1.PodScheduled, v1.PodReady)
		return nil
	})
	if err != nil {
		return err
	}
	s.countHealthy(bound, 1)
	s.bound.Add(1)
	s.mu.Lock()
	delete(s.failures, pod.UID)
	s.progressLocked()
	s.mu.Unlock()
	return nil
}

// topologyLabels are the labels that the API server copies from a node to the pods bound to it.
var topologyLabels = []string{v1.LabelTopologyZone, v1.LabelTopologyRegion}

// labelsOn returns the labels of a pod that is bound to a node.
func labelsOn(node *v1.Node, labels map[string]string) map[string]string {
	out := labels
	for _, label := range topologyLabels {
		if value, ok := node.Labels[label]; ok && out[label] != value {
			out = withLabel(out, label, value)
		}
	}
	return out
}

func withLabel(labels map[string]string, label, value string) map[string]string {
	out := make(map[string]string, len(labels)+1)
	maps.Copy(out, labels)
	out[label] = value
	return out
}

// without returns a map that lacks a key: the same one if it does not have it.
func without(m map[string]string, key string) map[string]string {
	if _, has := m[key]; !has {
		return m
	}
	out := maps.Clone(m)
	delete(out, key)
	return out
}

// withTrue returns a pod's conditions with some that have become true.
func withTrue(conditions []v1.PodCondition, at metav1.Time, kinds ...v1.PodConditionType) []v1.PodCondition {
	out := make([]v1.PodCondition, 0, len(conditions)+len(kinds))
	for i := range conditions {
		if !slices.Contains(kinds, conditions[i].Type) {
			out = append(out, conditions[i])
		}
	}
	for _, kind := range kinds {
		out = append(out, v1.PodCondition{Type: kind, Status: v1.ConditionTrue, LastTransitionTime: at})
	}
	return out
}

// endTerminatingPods has the pods of the cluster that terminate end when their grace periods do. A pod that ought to
// have ended stays: the copy does not know what keeps it.
func (s *Sim) endTerminatingPods(objects []client.Object) {
	now, longest := s.clock.Now(), s.options.EndWithin
	for _, obj := range objects {
		pod, ok := obj.(*v1.Pod)
		if !ok || pod.DeletionTimestamp == nil || pod.Spec.NodeName == "" || isEndedPod(pod) ||
			!pod.DeletionTimestamp.After(now) || longest > 0 && pod.DeletionTimestamp.Sub(now) > longest {
			continue
		}
		then := s.releaseClaims // its controller has replaced it when it began to terminate
		if !s.replacesAtOnce(pod) {
			then = s.releaseAndReplace
		}
		s.endPodAt(pod, pod.DeletionTimestamp.Time, then)
	}
}

// Displace ends a pod, whether or not the copy has it, and has its controller make another one, as when only this
// pod has failed. A pod that stands for a lost one only moves: it has not failed itself.
func (s *Sim) Displace(pod *v1.Pod) {
	if now, ok := get[*v1.Pod](s.store, keyOf(pod)); ok && now.UID == pod.UID {
		s.store.remove(kindFor[*v1.Pod](s.store), keyOf(pod))
		s.countHealthy(now, -1)
	}
	s.mu.Lock()
	moves := s.replaced[pod.UID] != nil
	s.mu.Unlock()
	if !moves {
		s.countFailures(pod)
	}
	s.releaseAndReplace(pod)
	s.noteChange()
}

// Add creates objects, and the own claims of pods. The Sim owns the objects from then on. Run schedules the pods.
func (s *Sim) Add(objects ...client.Object) error {
	slices.SortStableFunc(objects, func(a, b client.Object) int {
		return cmp.Compare(s.store.kindOrder(a), s.store.kindOrder(b))
	})
	for _, obj := range objects {
		if created := obj.GetCreationTimestamp(); created.IsZero() {
			obj.SetCreationTimestamp(metav1.Time{Time: s.clock.Now()})
		}
		create := s.store.create
		switch o := obj.(type) {
		case *v1.Pod:
			if !s.store.hasNativeGroups() {
				o.Spec.SchedulingGroup = nil
			}
			s.makeClaims(o)
		case *v1.PersistentVolumeClaim:
			create = func(client.Object) error { return s.createClaim(o) }
		}
		if err := create(obj); err != nil {
			return err
		}
	}
	s.noteChange()
	return nil
}

// noteChange notes that the caller has changed something.
func (s *Sim) noteChange() {
	s.noteProgress()
	s.clock.deferAtLeast(changeTime)
}

// Remove deletes an object at once, as if it had never existed: no controller replaces it.
func (s *Sim) Remove(obj client.Object) {
	if k, err := s.store.kindOf(obj); err == nil {
		s.store.remove(k, keyOf(obj))
	}
	s.noteChange()
}

// RemoveNode removes a node with its pods, as if it had never existed.
func (s *Sim) RemoveNode(name string) {
	s.removeNodes(map[string]bool{name: true})
	for _, pod := range objectsByIndex[*v1.Pod](s.store, nodeIndex, name) {
		s.Remove(pod)
	}
}

// AddNodes adds copies of a node, with the pods that run on every such node and with the data of its CSI and device
// drivers. It returns their names.
func (s *Sim) AddNodes(n int, like string) ([]string, error) {
	model, ok := get[*v1.Node](s.store, like)
	if !ok {
		return nil, fmt.Errorf("there is no node %q", like)
	}
	var names []string
	for i := range n {
		name := fmt.Sprintf("%s-added-%d", like, i+1)
		node := copyOf(model)
		node.ObjectMeta = metav1.ObjectMeta{Name: name, Labels: node.Labels, Annotations: node.Annotations}
		for label, value := range node.Labels {
			if label == v1.LabelHostname || value == like && label != v1.LabelTopologyZone { // such as a storage driver's own label
				node.Labels[label] = name
			}
		}
		node.Spec = v1.NodeSpec{Taints: node.Spec.Taints}
		node.Status.VolumesAttached, node.Status.VolumesInUse = nil, nil
		if err := s.Add(node); err != nil {
			return nil, err
		}
		names = append(names, name)
		s.copyDrivers(model, node)
		for _, pod := range objectsByIndex[*v1.Pod](s.store, nodeIndex, like) {
			if !NodeBound(pod) || pod.DeletionTimestamp != nil {
				continue
			}
			c := copyOf(pod)
			c.ObjectMeta = metav1.ObjectMeta{
				Namespace: pod.Namespace, Name: strings.TrimSuffix(pod.Name, "-"+like) + "-" + name,
				Labels: c.Labels, Annotations: c.Annotations, OwnerReferences: c.OwnerReferences,
			}
			c.Spec.NodeName = name
			if err := s.Add(c); err != nil {
				return nil, err
			}
		}
	}
	return names, nil
}

// Evicted returns the pods that the scheduler has evicted.
func (s *Sim) Evicted() []*v1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.evicted)
}

func (s *Sim) afterWrite(ctx context.Context, obj client.Object) {
	done := true
	switch o := obj.(type) {
	case *v1.PersistentVolume:
		s.bindClaim(o)
	case *v1.PersistentVolumeClaim:
		done = s.provisionSelected(o)
	}
	noteVolumeWrite(ctx, done)
}

// Put stores a new or changed object of the cluster. The object is not modified, and may be shared.
func (s *Sim) Put(obj client.Object) error {
	s.noteChange()
	return s.store.put(obj)
}

// PassTime lets time pass in the copy without scheduling cycles: grace periods end, and statuses are written.
func (s *Sim) PassTime(ctx context.Context, d time.Duration) error {
	end := s.clock.Now().Add(d)
	for {
		if err := s.settle(ctx); err != nil {
			return err
		}
		waitUntilIdle(advanceRestLimit)
		at, ok := s.clock.nextDeadline()
		if !ok || at.After(end) {
			s.clock.advanceTo(end)
			return s.settle(ctx)
		}
		s.clock.advanceTo(at)
	}
}
