package run

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// waves is in how many steps a zone is drained.
const waves = 6

// cordon closes the zone's nodes and waits until all carry the taint: only
// then the zone no longer counts in anybody's spread.
func (d *demo) cordon(ctx context.Context, zone string) error {
	return d.setUnschedulable(ctx, "cordon", zone, true, func(n *corev1.Node) string {
		if slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeUnschedulable }) {
			return ""
		}
		return "node " + n.Name + " is not yet tainted"
	})
}

// uncordon opens the zone's nodes and waits until all take pods.
func (d *demo) uncordon(ctx context.Context, zone string) error {
	return d.setUnschedulable(ctx, "uncordon", zone, false, func(n *corev1.Node) string {
		if takesPods(n) {
			return ""
		}
		return "node " + n.Name + " does not take pods yet"
	})
}

// setUnschedulable closes or opens the zone's nodes, and waits until missing says of each that nothing is missing. verb is
// what kubectl calls it.
func (d *demo) setUnschedulable(ctx context.Context, verb, zone string, unschedulable bool, missing func(*corev1.Node) string) error {
	patch := client.RawPatch(types.StrategicMergePatchType, fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, unschedulable))
	err := each(ctx, d.nodesOf(zone), func(ctx context.Context, n *corev1.Node) error {
		return d.cluster.Client.Patch(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}, patch)
	})
	if err != nil {
		return fmt.Errorf("%s: %w", verb, err)
	}
	return d.until(ctx, func() string {
		for _, n := range d.nodesOf(zone) {
			if what := missing(n); what != "" {
				return what
			}
		}
		return ""
	})
}

// nodesOf returns the nodes of a zone.
func (d *demo) nodesOf(zone string) []*corev1.Node {
	nodes, _ := d.seen.lists()
	return slices.DeleteFunc(slices.Clone(nodes), func(n *corev1.Node) bool { return n.Labels[corev1.LabelTopologyZone] != zone })
}

// evacuate evicts the zone's pods, a part of its nodes at a time, and waits
// after each part until the replacements are placed as far as they fit.
func (d *demo) evacuate(ctx context.Context, zone string) error {
	var names []string
	for _, n := range d.nodesOf(zone) {
		names = append(names, n.Name)
	}
	slices.Sort(names)
	for wave := range slices.Chunk(names, (len(names)+waves-1)/waves) {
		_, pods := d.seen.lists()
		var going []*corev1.Pod
		for _, pod := range pods {
			if slices.Contains(wave, pod.Spec.NodeName) && pod.DeletionTimestamp == nil {
				going = append(going, pod)
			}
		}
		if err := each(ctx, going, d.evict); err != nil {
			return err
		}
		err := d.until(ctx, func() string {
			_, pods := d.seen.lists()
			for _, pod := range pods {
				if slices.Contains(wave, pod.Spec.NodeName) {
					return fmt.Sprintf("pod %s/%s is still on %s", pod.Namespace, pod.Name, pod.Spec.NodeName)
				}
			}
			return ""
		})
		if err != nil {
			return err
		}
		if err := d.settle(ctx); err != nil {
			return err
		}
	}
	return nil
}

// evict asks for the pod's eviction, again and again while a disruption budget
// forbids it.
func (d *demo) evict(ctx context.Context, pod *corev1.Pod) error {
	const again = 200 * time.Millisecond
	for {
		err := d.cluster.Client.SubResource("eviction").Create(ctx, pod.DeepCopy(), &policyv1.Eviction{
			DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: ptr.To(pod.UID)}},
		})
		switch {
		case err == nil, apierrors.IsNotFound(err), apierrors.IsConflict(err): // gone, or another pod of that name
			return nil
		case !apierrors.IsTooManyRequests(err):
			return fmt.Errorf("evict %s/%s: %w", pod.Namespace, pod.Name, err)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(again):
		}
	}
}
