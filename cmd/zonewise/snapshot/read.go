package snapshot

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	schedv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/apis/v1alpha1"
)

// pageSize is how many objects one request asks for: a page of pods is a few megabytes.
const pageSize = 1000

// Scheme knows the kinds of a snapshot.
func Scheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientscheme.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	utilruntime.Must(schedv1alpha1.AddToScheme(scheme))
	return scheme
}

// NewClient returns a client for the API server behind config that asks as fast as a person's tools do.
func NewClient(config *rest.Config) (client.Client, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = 50, 100
	return client.New(config, client.Options{Scheme: Scheme()})
}

// Progress is told how many objects have been read. It is called from one goroutine at a time.
type Progress func(objects int)

// Read takes a snapshot. progress may be nil. Errors are about nodes and pods, without which there is none; other
// kinds that are not installed or may not be read are left out, see Snapshot.Missing.
func Read(ctx context.Context, c client.Client, progress Progress) (*Snapshot, error) {
	s := New(time.Now().UTC())
	r := &reader{client: c, progress: progress}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(6)
	read(ctx, group, r, "pods", true, &s.Pods, func(l *corev1.PodList) []corev1.Pod { return l.Items })
	read(ctx, group, r, "nodes", true, &s.Nodes, func(l *corev1.NodeList) []corev1.Node { return l.Items })
	read(ctx, group, r, "namespaces", false, &s.Namespaces, func(l *corev1.NamespaceList) []corev1.Namespace { return l.Items })
	read(ctx, group, r, "deployments.apps", false, &s.Deployments, func(l *appsv1.DeploymentList) []appsv1.Deployment { return l.Items })
	read(ctx, group, r, "replicasets.apps", false, &s.ReplicaSets, func(l *appsv1.ReplicaSetList) []appsv1.ReplicaSet { return l.Items })
	read(ctx, group, r, "statefulsets.apps", false, &s.StatefulSets, func(l *appsv1.StatefulSetList) []appsv1.StatefulSet { return l.Items })
	read(ctx, group, r, "jobs.batch", false, &s.Jobs, func(l *batchv1.JobList) []batchv1.Job { return l.Items })
	read(ctx, group, r, "replicationcontrollers", false, &s.ReplicationControllers, func(l *corev1.ReplicationControllerList) []corev1.ReplicationController { return l.Items })
	read(ctx, group, r, "poddisruptionbudgets.policy", false, &s.Budgets, func(l *policyv1.PodDisruptionBudgetList) []policyv1.PodDisruptionBudget { return l.Items })
	read(ctx, group, r, PriorityClasses, false, &s.PriorityClasses, func(l *schedulingv1.PriorityClassList) []schedulingv1.PriorityClass { return l.Items })
	read(ctx, group, r, "persistentvolumes", false, &s.Volumes, func(l *corev1.PersistentVolumeList) []corev1.PersistentVolume { return l.Items })
	read(ctx, group, r, "persistentvolumeclaims", false, &s.Claims, func(l *corev1.PersistentVolumeClaimList) []corev1.PersistentVolumeClaim { return l.Items })
	read(ctx, group, r, "zonespreadpolicies.zonewise.dev", false, &s.Policies, func(l *v1alpha1.ZoneSpreadPolicyList) []v1alpha1.ZoneSpreadPolicy { return l.Items })
	read(ctx, group, r, "zonereservations.zonewise.dev", false, &s.Reservations, func(l *v1alpha1.ZoneReservationList) []v1alpha1.ZoneReservation { return l.Items })
	read(ctx, group, r, "podgroups.scheduling.x-k8s.io", false, &s.PodGroups, func(l *schedv1alpha1.PodGroupList) []schedv1alpha1.PodGroup { return l.Items })
	if err := group.Wait(); err != nil {
		return nil, err
	}
	slices.SortFunc(r.missing, func(a, b Missing) int { return strings.Compare(a.Resource, b.Resource) })
	s.Missing = r.missing
	return s, nil
}

// reader is what the reads of one snapshot share.
type reader struct {
	client   client.Client
	progress Progress

	mu      sync.Mutex // guards what follows
	objects int
	missing []Missing
}

// read reads all objects of a kind in pages.
func read[L any, I any, PL interface {
	*L
	client.ObjectList
}](ctx context.Context, group *errgroup.Group, r *reader, resource string, needed bool, into *[]I, items func(*L) []I) {
	group.Go(func() error {
		var next string
		for {
			var list L
			err := r.client.List(ctx, PL(&list), client.Limit(pageSize), client.Continue(next))
			switch reason := ReasonOf(err); {
			case err == nil:
			case apierrors.IsResourceExpired(err) && next != "":
				// The server has forgotten the version that the first page was of.
				*into, next = nil, ""
				continue
			case reason != "" && !needed:
				r.add(0, &Missing{Resource: resource, Reason: reason})
				return nil
			default:
				return fmt.Errorf("list %s: %w", resource, err)
			}
			*into = append(*into, items(&list)...)
			r.add(len(items(&list)), nil)
			if next = PL(&list).GetContinue(); next == "" {
				return nil
			}
		}
	})
}

// ReasonOf says why a kind can be left out, empty when the error is of another sort or nil.
func ReasonOf(err error) string {
	switch {
	case meta.IsNoMatchError(err), apierrors.IsNotFound(err):
		return NotInstalled
	case apierrors.IsForbidden(err):
		return Forbidden
	}
	return ""
}

func (r *reader) add(objects int, missing *Missing) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.objects += objects
	if missing != nil {
		r.missing = append(r.missing, *missing)
	}
	if r.progress != nil {
		r.progress(r.objects)
	}
}
