package survival

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cmd/zonewise/live"
	"zonewise.dev/cmd/zonewise/snapshot"
	"zonewise.dev/internal/crd"
	"zonewise.dev/internal/metrics"
	"zonewise.dev/survival"
)

// Options are those of a controller.
type Options struct {
	// Certify says how losses are replayed. What belongs to one snapshot is set for each round.
	Certify survival.Options
	// CPUFraction is how much of a core the process may use, above 0.
	CPUFraction float64
	// SettleTime is how long after a change the cluster is read, so that changes that belong together are read together.
	SettleTime time.Duration
	// RefreshInterval is the age at which an answer is computed again although nothing has changed.
	RefreshInterval time.Duration
}

// Controller answers ZoneSurvivals. Make one with New.
type Controller struct {
	options Options
	client  client.Client
	live    *live.Live
	budget  budget
	// hash is the fingerprint of the cluster that the last round read, at what time; empty if its answers were not all written.
	hash string
	at   time.Time

	mu      sync.Mutex // guards answers
	answers map[string]v1alpha1.ZoneSurvivalStatus
}

// New returns a controller that reads the cluster from l and writes through c.
func New(l *live.Live, c client.Client, options Options) *Controller {
	return &Controller{
		options: options, client: c, live: l, budget: budget{fraction: options.CPUFraction, cpu: cpuTime}, answers: map[string]v1alpha1.ZoneSurvivalStatus{},
	}
}

// Run answers until ctx ends. An error is that of ctx, or says that the cluster cannot be read.
func (c *Controller) Run(ctx context.Context) error {
	if err := c.live.Sync(ctx); err != nil {
		return err
	}
	metrics.MustRegister(roundDuration)
	collector.Export(ctx, c)
	logger := klog.FromContext(ctx)
	for {
		if troubles := c.live.Troubles(); len(troubles) > 0 {
			logger.Info("The cluster is not read now, answers are not renewed", "reason", troubles[0])
		} else if err := c.round(ctx); err != nil {
			return err
		}
		refresh := time.NewTimer(c.options.RefreshInterval)
		select {
		case <-ctx.Done():
			refresh.Stop()
			return context.Cause(ctx)
		case <-c.live.Changed():
			refresh.Stop()
		case <-refresh.C:
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(max(c.options.SettleTime, time.Until(c.budget.next()))):
		}
	}
}

// round replays the losses if the cluster has changed, or if the last answer is old.
func (c *Controller) round(ctx context.Context) error {
	cluster := c.live.Snapshot()
	asked := snapshot.List[*v1alpha1.ZoneSurvival](cluster)
	objects := cluster.Objects()
	hash := survival.Fingerprint(objects)
	if hash == c.hash && cluster.TakenAt.Sub(c.at) < c.options.RefreshInterval {
		return nil
	}
	logger := klog.FromContext(ctx)
	began := time.Now()
	c.budget.begin(began)
	c.hash, c.at = hash, cluster.TakenAt
	var statuses []v1alpha1.ZoneSurvivalStatus
	options := c.options.Certify
	if len(asked) > 0 {
		options.Fingerprint = hash
		options.Sim.Now, options.Sim.NotInstalled = cluster.TakenAt, cluster.NotInstalled()
		for _, m := range cluster.Missing {
			if m.Reason == snapshot.Forbidden {
				options.Missing = append(options.Missing, "the controller may not list "+m.Resource)
			}
		}
		var err error
		if statuses, err = survival.Certify(ctx, objects, asked, options); err != nil {
			return err
		}
		logger.V(2).Info("Replayed losses", "zonesurvivals", len(asked), "took", time.Since(began), "cpu", c.budget.cpu()-c.budget.used)
	}
	answers := map[string]v1alpha1.ZoneSurvivalStatus{}
	for i, s := range asked {
		if written, err := c.hold(ctx, objects, s, options, &statuses[i]); err != nil {
			return err
		} else if !written {
			c.hash = "" // once more, with the newer reservation
		}
		answers[s.Name] = statuses[i]
		if err := c.write(ctx, s, statuses[i]); err != nil {
			c.hash = "" // once more, with the newer object
			logger.Error(err, "Cannot write the status", "zonesurvival", klog.KObj(s))
		}
	}
	if len(asked) > 0 {
		roundDuration.Observe(time.Since(began).Seconds())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answers = answers
	return ctx.Err()
}

// write writes a status, and an event for each condition that is another one.
func (c *Controller) write(ctx context.Context, asked *v1alpha1.ZoneSurvival, status v1alpha1.ZoneSurvivalStatus) error {
	written := asked.DeepCopy()
	written.Status = status
	if err := c.client.Status().Update(ctx, written); err != nil {
		return client.IgnoreNotFound(err)
	}
	for _, of := range events {
		was, is := meta.FindStatusCondition(asked.Status.Conditions, of.condition), meta.FindStatusCondition(status.Conditions, of.condition)
		if is == nil || was != nil && was.Status == is.Status {
			continue
		}
		if err := c.client.Create(ctx, of.event(written, is)); err != nil {
			return err
		}
	}
	return nil
}

// eventsOf are the reasons of the events about a condition, by what it is.
type eventsOf struct{ condition, yes, no, unknown string }

var events = []eventsOf{
	{v1alpha1.ConditionSurvives, "Survives", "DoesNotSurvive", "SurvivalUnknown"},
	{v1alpha1.ConditionHeld, "RoomHeld", "RoomNotHeld", "RoomUnknown"},
}

func (of *eventsOf) event(about *v1alpha1.ZoneSurvival, is *metav1.Condition) *eventsv1.Event {
	kind, reason := v1.EventTypeNormal, of.yes
	switch is.Status {
	case metav1.ConditionFalse:
		kind, reason = v1.EventTypeWarning, of.no
	case metav1.ConditionUnknown:
		reason = of.unknown
	}
	host, _ := os.Hostname()
	now := time.Now()
	return &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: fmt.Sprintf("%.200s.%x", about.Name, now.UnixNano())},
		EventTime:  metav1.NewMicroTime(now), Type: kind, Reason: reason, Action: "Replay", Note: crd.Shortened(is.Message),
		Regarding: v1.ObjectReference{
			APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "ZoneSurvival", Name: about.Name, UID: about.UID, ResourceVersion: about.ResourceVersion,
		},
		ReportingController: "zonewise.dev/survival", ReportingInstance: cmp.Or(host, "unknown"),
	}
}
