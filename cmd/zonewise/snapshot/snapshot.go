package snapshot

import (
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	schedv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/apis/v1alpha1"
)

// The identity of a snapshot in a file.
const (
	apiVersion = "cli.zonewise.dev/v1"
	kind       = "Snapshot"
)

// Snapshot is a cluster at one moment.
type Snapshot struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// TakenAt is when it was read.
	TakenAt time.Time `json:"takenAt"`
	// Missing says what could not be read, and why.
	Missing []Missing `json:"missing,omitempty"`

	Nodes                  []corev1.Node                  `json:"nodes"`
	Namespaces             []corev1.Namespace             `json:"namespaces,omitempty"`
	Pods                   []corev1.Pod                   `json:"pods"`
	Deployments            []appsv1.Deployment            `json:"deployments,omitempty"`
	ReplicaSets            []appsv1.ReplicaSet            `json:"replicaSets,omitempty"`
	StatefulSets           []appsv1.StatefulSet           `json:"statefulSets,omitempty"`
	Jobs                   []batchv1.Job                  `json:"jobs,omitempty"`
	ReplicationControllers []corev1.ReplicationController `json:"replicationControllers,omitempty"`
	Budgets                []policyv1.PodDisruptionBudget `json:"podDisruptionBudgets,omitempty"`
	PriorityClasses        []schedulingv1.PriorityClass   `json:"priorityClasses,omitempty"`
	Volumes                []corev1.PersistentVolume      `json:"persistentVolumes,omitempty"`
	Claims                 []corev1.PersistentVolumeClaim `json:"persistentVolumeClaims,omitempty"`
	Policies               []v1alpha1.ZoneSpreadPolicy    `json:"zoneSpreadPolicies,omitempty"`
	Reservations           []v1alpha1.ZoneReservation     `json:"zoneReservations,omitempty"`
	PodGroups              []schedv1alpha1.PodGroup       `json:"podGroups,omitempty"`
}

// New returns a snapshot of that time without objects.
func New(takenAt time.Time) *Snapshot {
	return &Snapshot{APIVersion: apiVersion, Kind: kind, TakenAt: takenAt}
}

// Missing is a kind that could not be read.
type Missing struct {
	// Resource is its plural name with its group, such as podgroups.scheduling.x-k8s.io.
	Resource string `json:"resource"`
	// Reason is NotInstalled or Forbidden.
	Reason string `json:"reason"`
}

// PriorityClasses is the Resource of Snapshot.PriorityClasses.
const PriorityClasses = "priorityclasses.scheduling.k8s.io"

// The reasons why a kind is missing.
const (
	NotInstalled = "NotInstalled"
	Forbidden    = "Forbidden"
)

// Words says what is missing in one line.
func (m Missing) Words() string {
	if m.Reason == NotInstalled {
		return m.Resource + " are not installed in this cluster"
	}
	return "you may not list " + m.Resource + ", they are left out"
}

// check refuses what is no snapshot of ours.
func (s *Snapshot) check() error {
	if s.Kind != kind || s.APIVersion != apiVersion {
		return fmt.Errorf("not a snapshot: want apiVersion %s and kind %s, got %q and %q", apiVersion, kind, s.APIVersion, s.Kind)
	}
	if len(s.Nodes) == 0 {
		return errors.New("nodes: the snapshot has none")
	}
	return nil
}

// IsSet tells whether a kind was read.
func (s *Snapshot) IsSet(resource string) bool {
	for _, m := range s.Missing {
		if m.Resource == resource {
			return false
		}
	}
	return true
}
