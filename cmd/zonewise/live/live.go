package live

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	schedv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cmd/zonewise/snapshot"
)

// Live is a cluster that is followed. Its methods may be called from several goroutines.
type Live struct {
	kinds   []kind
	changed chan struct{}
	running sync.WaitGroup

	mu sync.Mutex // guards answered, and the contents of kinds
	// answered is closed and made anew whenever a kind has been answered for.
	answered chan struct{}
}

// kind is one kind of objects that is followed.
type kind interface {
	run(ctx context.Context)
	// The rest is called under the lock of Live.
	fillLocked(s *snapshot.Snapshot)
	stateLocked() *state
}

// state is what is known about the reading of a kind.
type state struct {
	resource string
	needed   bool
	// answered: it has been listed, or the API server has said that it will not be.
	answered bool
	missing  string // NotInstalled or Forbidden
	// failed is the last error of listing or watching, nil after a success, and since is when it began.
	failed error
	since  time.Time
	// unwatched: it may be listed and not watched.
	unwatched bool
}

// Start follows the cluster behind config until the context ends; see Wait.
func Start(ctx context.Context, config *rest.Config) (*Live, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = 50, 100
	// What goes wrong is in Troubles; a log on top of it would only be in the way of who looks at a terminal.
	quiet := klog.NewContext(ctx, logr.Discard())
	c, err := client.NewWithWatch(config, client.Options{Scheme: snapshot.Scheme()})
	if err != nil {
		return nil, err
	}
	l := &Live{changed: make(chan struct{}, 1), answered: make(chan struct{})}
	l.kinds = []kind{
		newSet(l, c, "pods", true, &corev1.PodList{}, func(s *snapshot.Snapshot) *[]corev1.Pod { return &s.Pods }),
		newSet(l, c, "nodes", true, &corev1.NodeList{}, func(s *snapshot.Snapshot) *[]corev1.Node { return &s.Nodes }),
		newSet(l, c, "namespaces", false, &corev1.NamespaceList{}, func(s *snapshot.Snapshot) *[]corev1.Namespace { return &s.Namespaces }),
		newSet(l, c, "deployments.apps", false, &appsv1.DeploymentList{}, func(s *snapshot.Snapshot) *[]appsv1.Deployment { return &s.Deployments }),
		newSet(l, c, "replicasets.apps", false, &appsv1.ReplicaSetList{}, func(s *snapshot.Snapshot) *[]appsv1.ReplicaSet { return &s.ReplicaSets }),
		newSet(l, c, "statefulsets.apps", false, &appsv1.StatefulSetList{}, func(s *snapshot.Snapshot) *[]appsv1.StatefulSet { return &s.StatefulSets }),
		newSet(l, c, "jobs.batch", false, &batchv1.JobList{}, func(s *snapshot.Snapshot) *[]batchv1.Job { return &s.Jobs }),
		newSet(l, c, "replicationcontrollers", false, &corev1.ReplicationControllerList{}, func(s *snapshot.Snapshot) *[]corev1.ReplicationController { return &s.ReplicationControllers }),
		newSet(l, c, "poddisruptionbudgets.policy", false, &policyv1.PodDisruptionBudgetList{}, func(s *snapshot.Snapshot) *[]policyv1.PodDisruptionBudget { return &s.Budgets }),
		newSet(l, c, "priorityclasses.scheduling.k8s.io", false, &schedulingv1.PriorityClassList{}, func(s *snapshot.Snapshot) *[]schedulingv1.PriorityClass { return &s.PriorityClasses }),
		newSet(l, c, "persistentvolumes", false, &corev1.PersistentVolumeList{}, func(s *snapshot.Snapshot) *[]corev1.PersistentVolume { return &s.Volumes }),
		newSet(l, c, "persistentvolumeclaims", false, &corev1.PersistentVolumeClaimList{}, func(s *snapshot.Snapshot) *[]corev1.PersistentVolumeClaim { return &s.Claims }),
		newSet(l, c, "zonespreadpolicies.zonewise.dev", false, &v1alpha1.ZoneSpreadPolicyList{}, func(s *snapshot.Snapshot) *[]v1alpha1.ZoneSpreadPolicy { return &s.Policies }),
		newSet(l, c, "zonereservations.zonewise.dev", false, &v1alpha1.ZoneReservationList{}, func(s *snapshot.Snapshot) *[]v1alpha1.ZoneReservation { return &s.Reservations }),
		newSet(l, c, "podgroups.scheduling.x-k8s.io", false, &schedv1alpha1.PodGroupList{}, func(s *snapshot.Snapshot) *[]schedv1alpha1.PodGroup { return &s.PodGroups }),
	}
	for _, k := range l.kinds {
		l.running.Go(func() { k.run(quiet) })
	}
	return l, nil
}

// Wait returns when nothing is followed any more, after the end of the context.
func (l *Live) Wait() { l.running.Wait() }

// Sync waits until the cluster is known. The error is about nodes or pods: the first that the API server or the network
// gives, or the end of the context.
func (l *Live) Sync(ctx context.Context) error {
	for {
		l.mu.Lock()
		next := l.answered
		waiting := ""
		for _, k := range l.kinds {
			s := k.stateLocked()
			if s.needed && !s.answered && s.failed != nil {
				l.mu.Unlock()
				return fmt.Errorf("list %s: %w", s.resource, s.failed)
			}
			if !s.answered {
				waiting = s.resource
			}
		}
		l.mu.Unlock()
		if waiting == "" {
			return nil
		}
		select {
		case <-next:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Changed receives when Snapshot or Troubles may have changed since the last time that it received.
func (l *Live) Changed() <-chan struct{} { return l.changed }

// Snapshot returns the cluster as it is known. It is the caller's own but for what the objects point to.
func (l *Live) Snapshot() *snapshot.Snapshot {
	s := snapshot.New(time.Now().UTC())
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range l.kinds {
		k.fillLocked(s)
		if state := k.stateLocked(); state.missing != "" {
			s.Missing = append(s.Missing, snapshot.Missing{Resource: state.resource, Reason: state.missing})
		}
	}
	slices.SortFunc(s.Missing, func(a, b snapshot.Missing) int { return strings.Compare(a.Resource, b.Resource) })
	return s
}

// Troubles says in a line each what keeps the snapshot from being current, the most important first.
func (l *Live) Troubles() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out, listed []string
	broken := 0
	var first *state
	for _, k := range l.kinds {
		s := k.stateLocked()
		switch {
		case s.failed != nil:
			if broken++; first == nil || s.since.Before(first.since) {
				first = s
			}
		case s.unwatched && s.missing == "":
			listed = append(listed, s.resource)
		}
	}
	if first != nil {
		words := strings.Join(strings.Fields(first.failed.Error()), " ")
		out = append(out, fmt.Sprintf("the cluster has not been read since %s, what you see may be older: %s: %s",
			first.since.UTC().Format("15:04:05 MST"), first.resource, words))
	}
	if len(listed) > 0 {
		out = append(out, "you may list but not watch "+strings.Join(listed, ", ")+": changes show half a minute late")
	}
	return out
}

// note keeps what came of a list or a watch of a kind.
func (l *Live) note(s *state, err error, watch bool) {
	if errors.Is(err, context.Canceled) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s.noteLocked(err, watch, time.Now())
	l.tellLocked(s.answered || s.failed != nil)
}

// tellLocked tells that something has changed, and to those in Sync that there is something to look at.
func (l *Live) tellLocked(answer bool) {
	if answer {
		close(l.answered)
		l.answered = make(chan struct{})
	}
	select {
	case l.changed <- struct{}{}:
	default:
	}
}
