package run

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	schedv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/demo/board"
	"zonewise.dev/demo/workload"
)

// How the books are given the chance to be clean: tiny pods are placed and
// removed, a scheduling cycle each, until the scheduler has compared its books
// this often with nothing in motion, and found nothing.
const (
	comparisons   = 2
	probeInterval = 250 * time.Millisecond
	probeLimit    = 20 * time.Second
)

// restLimit is how long the gang that waits may hold something after the last
// probe: room that appears, as when a probe goes, is a reason to try again, and
// an attempt that fails is to be undone. It is far shorter than the time until
// such a gang tries again by itself.
const restLimit = 10 * time.Second

// balance lets the scheduler compare its books, waits until nothing is held,
// and returns the last metrics. When one or the other does not come to pass in
// time they are what they are: the board judges.
func (d *demo) balance(ctx context.Context) (board.Metrics, error) {
	if err := d.account(ctx, corev1.NamespaceDefault); err != nil {
		return board.Metrics{}, err
	}
	first, err := d.metrics(ctx)
	if err != nil {
		return first, err
	}
	serial := 0
	_, err = d.poll(ctx, probeLimit, func(last board.Metrics) bool {
		return last.Clean() && last.Checks >= first.Checks+comparisons
	}, func() error {
		serial++
		return d.placeProbe(ctx, serial)
	})
	if err != nil {
		return first, err
	}
	return d.poll(ctx, restLimit, func(last board.Metrics) bool {
		return last.Clean() && d.nominated() == 0
	}, func() error { return nil })
}

// poll does something and reads the metrics, until they are right or the limit
// has passed, and returns them.
func (d *demo) poll(ctx context.Context, limit time.Duration, right func(board.Metrics) bool, do func() error) (board.Metrics, error) {
	ticker := time.NewTicker(probeInterval)
	defer ticker.Stop()
	for start := time.Now(); ; {
		if err := do(); err != nil {
			return board.Metrics{}, err
		}
		last, err := d.metrics(ctx)
		if err != nil || right(last) || time.Since(start) > limit {
			return last, err
		}
		select {
		case <-ctx.Done():
			return last, context.Cause(ctx)
		case <-ticker.C:
		}
	}
}

// nominated is how many pods that wait have a nominated node.
func (d *demo) nominated() int {
	_, pods := d.seen.lists()
	n := 0
	for _, pod := range pods {
		if pod.Spec.NodeName == "" && pod.Status.NominatedNodeName != "" {
			n++
		}
	}
	return n
}

func (d *demo) metrics(ctx context.Context) (board.Metrics, error) {
	text, err := d.cluster.SchedulerMetrics(ctx)
	if err != nil {
		return board.Metrics{}, err
	}
	return board.ParseMetrics(text)
}

// placeProbe creates a pod, waits until it is bound, and removes it.
func (d *demo) placeProbe(ctx context.Context, serial int) error {
	pod := workload.Probe(serial)
	if err := d.cluster.Client.Create(ctx, pod); err != nil {
		return fmt.Errorf("create a probe: %w", err)
	}
	err := d.until(ctx, func() string {
		seen, err := d.seen.pods.Pods(pod.Namespace).Get(pod.Name)
		if err != nil || seen.Spec.NodeName == "" {
			return "the probe " + pod.Name + " is not bound"
		}
		return ""
	})
	if err != nil {
		return err
	}
	if err := d.cluster.Client.Delete(ctx, pod, &client.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("remove a probe: %w", err)
	}
	return d.until(ctx, func() string {
		if _, err := d.seen.pods.Pods(pod.Namespace).Get(pod.Name); apierrors.IsNotFound(err) {
			return ""
		}
		return "the probe " + pod.Name + " is not gone"
	})
}

// evidence reads everything from the API server, past all caches.
func (d *demo) evidence(ctx context.Context, clients kubernetes.Interface, metrics board.Metrics) (board.Evidence, error) {
	var (
		nodes       corev1.NodeList
		pods        corev1.PodList
		deployments appsv1.DeploymentList
		groups      schedv1alpha1.PodGroupList
	)
	for _, list := range []client.ObjectList{&nodes, &pods, &deployments, &groups} {
		if err := d.cluster.Client.List(ctx, list); err != nil {
			return board.Evidence{}, fmt.Errorf("read the cluster: %w", err)
		}
	}
	version, err := clients.Discovery().ServerVersion()
	if err != nil {
		return board.Evidence{}, fmt.Errorf("read the cluster: %w", err)
	}
	return board.Evidence{
		Nodes: nodes.Items, Pods: pods.Items, Deployments: deployments.Items, PodGroups: groups.Items,
		Metrics:  metrics,
		Bindings: d.seen.seen(), MostBound: d.seen.peaks(),
		Phases:   d.phases,
		AppLabel: workload.AppLabel, FitsAnnotation: workload.FitsAnnotation,
		Version: version.GitVersion,
	}, nil
}
