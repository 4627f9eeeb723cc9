package survival

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/cmd/controller/parts"
	declared "zonewise.dev/cmd/controller/survival/metrics"
	"zonewise.dev/internal/crd"
	"zonewise.dev/survival"
)

// Options are those of the part.
type Options struct {
	// Replays is how many times each loss is replayed; see survival.Options.
	Replays int
	// RefreshInterval is the age at which an answer is computed again although nothing has changed.
	RefreshInterval time.Duration
}

// Controller answers ZoneSurvivals. Make one with New.
type Controller struct {
	options   Options
	certify   survival.Options // without what belongs to one snapshot
	client    client.Client
	certifier survival.Certifier
	// rounds bounds what the process uses from one full round to the next, and follows what it uses to look at the cluster between them and
	// to follow it: half as much, so that the next full round comes after twice the time at most.
	rounds, follows parts.Meter
	// hash is the fingerprint of the cluster that the last full round read, at what time, and answered that of the last answer; empty if it
	// was not written everywhere.
	hash, answered string
	at             time.Time
	// took is how long the last full round took.
	took time.Duration

	mu      sync.Mutex // guards answers
	answers map[string]v1alpha1.ZoneSurvivalStatus
}

// New returns the part.
func New(shared parts.Shared, options Options) *Controller {
	return &Controller{
		options: options, certify: survival.Options{Sim: shared.Sim, Replays: options.Replays}, client: shared.Client,
		answers: map[string]v1alpha1.ZoneSurvivalStatus{}, rounds: shared.NewMeter(1), follows: shared.NewMeter(0.5),
	}
}

// answer renews the answers if the cluster has changed, or if they are old: by a full round if the budget allows one now, else by following the
// changes, if they can be followed. It returns after how long it wants to be called again if nothing changes.
func (c *Controller) answer(ctx context.Context, read func() *snapshot.Snapshot) (wait time.Duration, err error) {
	began := time.Now()
	untilRound := c.rounds.Next().Sub(began)
	if until := c.idle(began); until > 0 {
		return until, nil // to read the cluster costs CPU, too
	}
	c.follows.Begin(began)
	defer c.follows.End()
	cluster := read()
	objects := cluster.Objects()
	hash := survival.Fingerprint(objects)
	age := cluster.TakenAt.Sub(c.at)
	r := c.round(objects, snapshot.List[*v1alpha1.ZoneSurvival](cluster))
	r.recountServing(ctx, cluster.TakenAt)
	if hash == c.hash && hash == c.answered && age < c.options.RefreshInterval {
		return c.options.RefreshInterval - age, nil
	}
	r.options.Fingerprint, r.options.Sim.Now, r.options.Sim.NotInstalled = hash, cluster.TakenAt, cluster.NotInstalled()
	for _, m := range cluster.Missing {
		if m.Reason == snapshot.Forbidden {
			r.options.Missing = append(r.options.Missing, "the controller may not list "+m.Resource)
		}
	}
	if untilRound > 0 {
		return min(untilRound, c.options.RefreshInterval), c.follow(ctx, r, hash)
	}
	if c.at.IsZero() || c.took > slowRound {
		if err := c.follow(ctx, r, hash); err != nil {
			return 0, err
		}
	}
	c.hash, c.at, c.answered = hash, cluster.TakenAt, hash
	if err := c.inRound(func() error { return r.replay(ctx) }); err != nil {
		return 0, err
	}
	c.took = time.Since(began)
	if !r.written {
		c.hash = "" // once more, with the newer objects
	}
	if len(r.asked) > 0 {
		klog.FromContext(ctx).V(2).Info("Replayed losses", "zonesurvivals", len(r.asked), "took", c.took, "cpu", c.rounds.Used())
		declared.RoundDuration.Observe(c.took.Seconds())
	}
	return c.options.RefreshInterval, nil
}

// inRound runs a full round. What it uses counts in its own budget, and not in the other one.
func (c *Controller) inRound(run func() error) error {
	c.rounds.Begin(time.Now())
	err := run()
	c.follows.Begin(time.Now())
	return err
}

// idle is for how long neither budget allows anything.
func (c *Controller) idle(now time.Time) time.Duration {
	return min(c.rounds.Next().Sub(now), c.follows.Next().Sub(now))
}

// follow answers without a full round, if it can. Else the answers that do not fit the cluster any more say so.
func (c *Controller) follow(ctx context.Context, r *round, hash string) error {
	if hash == c.answered {
		return nil
	}
	began := time.Now()
	statuses, followed, err := c.certifier.Follow(ctx, r.objects, r.asked, r.options)
	if err != nil {
		return err
	}
	if !followed {
		c.answered = "" // once the cluster is again as it was, there is something to write
		r.outdate(ctx)
		return ctx.Err()
	}
	c.keepUnfollowed(r.asked, statuses)
	for i := range statuses {
		outdate(&statuses[i], &r.options)
	}
	if c.answered = hash; !r.write(ctx, statuses) {
		c.answered = ""
	}
	klog.FromContext(ctx).V(2).Info("Followed a change", "took", time.Since(began))
	return ctx.Err()
}

// keepUnfollowed gives ZoneSurvivals for the loss of nodes, which are not followed, their last answer: it may not have been written.
func (c *Controller) keepUnfollowed(asked []*v1alpha1.ZoneSurvival, statuses []v1alpha1.ZoneSurvivalStatus) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, s := range asked {
		if last, known := c.answers[s.Name]; known && s.Spec.Survive.Nodes != nil {
			statuses[i] = *last.DeepCopy()
		}
	}
}

// round is what one look at the cluster leads to.
type round struct {
	*Controller
	objects []client.Object
	// asked are copies: each has the status that was written last, and the resourceVersion that the next write needs.
	asked   []*v1alpha1.ZoneSurvival
	options survival.Options
	// written: all that was found out is in the API server.
	written bool
}

func (c *Controller) round(objects []client.Object, asked []*v1alpha1.ZoneSurvival) *round {
	r := &round{Controller: c, objects: objects, options: c.certify}
	for _, s := range asked {
		r.asked = append(r.asked, s.DeepCopy())
	}
	return r
}

// replay replays all losses and writes the certificates. Then it finds out what to hold, which takes far longer, and writes that.
func (r *round) replay(ctx context.Context) error {
	var statuses []v1alpha1.ZoneSurvivalStatus
	if len(r.asked) > 0 {
		var err error
		if statuses, err = r.certifier.Certify(ctx, r.objects, r.asked, r.options); err != nil {
			return err
		}
	} else {
		r.certifier.Close()
	}
	r.written = r.write(ctx, statuses)
	for i, s := range r.asked {
		certified := statuses[i].DeepCopy()
		held, err := r.hold(ctx, r.objects, s, r.options, &statuses[i])
		if err != nil {
			return err
		}
		if !equality.Semantic.DeepEqual(certified, &statuses[i]) {
			held = r.writeStatus(ctx, s, statuses[i]) && held
		}
		r.written = r.written && held
	}
	return ctx.Err()
}

// write writes the statuses, and reports whether all are written.
func (r *round) write(ctx context.Context, statuses []v1alpha1.ZoneSurvivalStatus) bool {
	r.forgetOthers()
	all := true
	for i, s := range r.asked {
		all = r.writeStatus(ctx, s, statuses[i]) && all
	}
	return all
}

// forgetOthers forgets the answers to ZoneSurvivals that there are no more.
func (r *round) forgetOthers() {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.answers, func(name string, _ v1alpha1.ZoneSurvivalStatus) bool {
		return !slices.ContainsFunc(r.asked, func(s *v1alpha1.ZoneSurvival) bool { return s.Name == name })
	})
}

// writeStatus writes a status, and reports whether it is written. It is the answer in either case.
func (c *Controller) writeStatus(ctx context.Context, asked *v1alpha1.ZoneSurvival, status v1alpha1.ZoneSurvivalStatus) bool {
	c.mu.Lock()
	c.answers[asked.Name] = *status.DeepCopy() // what is held may be added to it meanwhile
	c.mu.Unlock()
	if err := c.updateStatus(ctx, asked, status); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot write the status", "zonesurvival", klog.KObj(asked))
		return false
	}
	return true
}

// updateStatus writes a status, and an event for each condition that is another one. asked becomes what is written.
func (c *Controller) updateStatus(ctx context.Context, asked *v1alpha1.ZoneSurvival, status v1alpha1.ZoneSurvivalStatus) error {
	before := asked.Status.Conditions
	written := asked.DeepCopy()
	status.DeepCopyInto(&written.Status) // the client puts the API server's answer there
	if err := c.client.Status().Update(ctx, written); err != nil {
		return client.IgnoreNotFound(err)
	}
	*asked = *written
	for _, of := range events {
		was, is := meta.FindStatusCondition(before, of.condition), meta.FindStatusCondition(status.Conditions, of.condition)
		if is == nil || told(was) == told(is) {
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
	{v1alpha1.ConditionServes, "EnoughServing", "TooFewServing", "ServingUnknown"},
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
