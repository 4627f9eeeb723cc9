package survival

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
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
	shared    parts.Shared
	certifier survival.Certifier
	// fullBudget bounds what the process uses from one full round to the next, and followBudget what it uses to read the
	// cluster between them and to follow it: half as much, so that the next full round comes after twice the time at
	// most.
	fullBudget, followBudget parts.Meter
	// hashOfFullRound is the question that the last full round answered, at fullRoundAt, and hashOfStatuses that of the
	// statuses; empty if they were not written everywhere.
	hashOfFullRound, hashOfStatuses string
	fullRoundAt                     time.Time
	// fullRoundTook is how long the last full round took.
	fullRoundTook time.Duration
	// purchases is what is lacking where answers are False.
	purchases purchases

	// seen is when each zone was last seen with nodes, or in a reservation when the process started.
	seen map[string]time.Time

	mu      sync.Mutex // guards answers
	answers map[string]answer
}

// New returns the part.
func New(shared parts.Shared, options Options) *Controller {
	return &Controller{
		options: options, certify: survival.Options{Sim: shared.Sim, Replays: options.Replays}, shared: shared,
		answers: map[string]answer{}, seen: map[string]time.Time{}, fullBudget: shared.NewMeter(1), followBudget: shared.NewMeter(0.5),
		purchases: purchases{
			budget: shared.NewMeter(purchaseShare), searched: map[askedSpec]cluster{},
			found: map[askedSpec]*v1alpha1.SurvivalPurchase{},
		},
	}
}

// renewAnswers renews the answers if the cluster has changed, or if they are old: by a full round if the budget allows
// one now, else by following the changes, if they can be followed. It returns after how long it wants to be called
// again if nothing changes.
func (c *Controller) renewAnswers(ctx context.Context, read func() *snapshot.Snapshot) (wait time.Duration, err error) {
	began := time.Now()
	untilRound := c.fullBudget.Next().Sub(began)
	if until := c.untilBudget(began); until > 0 {
		return until, nil // to read the cluster costs CPU, too
	}
	c.followBudget.Begin(began)
	defer c.followBudget.End()
	cluster := read()
	r := c.newRound(cluster)
	question := r.questionHash()
	age := cluster.TakenAt.Sub(c.fullRoundAt)
	if len(r.options.Missing) > 0 {
		if r.markOutdated(ctx) {
			c.hashOfStatuses = question
		}
		return c.options.RefreshInterval, ctx.Err()
	}
	c.noteZones(cluster)
	r.holdRoom(ctx)
	r.recountServing(ctx, cluster.TakenAt)
	r.writePurchases(ctx)
	switch {
	case question == c.hashOfFullRound && question == c.hashOfStatuses && age < c.options.RefreshInterval:
		return c.options.RefreshInterval - age, nil
	case untilRound > 0:
		return min(untilRound, c.options.RefreshInterval), r.followChanges(ctx)
	case c.fullRoundAt.IsZero() || c.fullRoundTook > slowRound:
		if err := r.followChanges(ctx); err != nil {
			return 0, err
		}
	}
	c.hashOfFullRound, c.fullRoundAt, c.hashOfStatuses = question, cluster.TakenAt, question
	if err := c.runFullRound(func() error { return r.replayLosses(ctx) }); err != nil {
		return 0, err
	}
	c.fullRoundTook = time.Since(began)
	if !r.written {
		c.hashOfFullRound = "" // once more, with the newer objects
	}
	if len(r.asked) > 0 {
		klog.FromContext(ctx).V(2).Info(
			"Replayed losses", "zonesurvivals", len(r.asked), "took", c.fullRoundTook, "cpu", c.fullBudget.Used(),
		)
		declared.RoundDuration.Observe(c.fullRoundTook.Seconds())
	}
	return c.options.RefreshInterval, nil
}

// runFullRound runs a full round. What it uses counts in its own budget, and not in the other one.
func (c *Controller) runFullRound(run func() error) error {
	c.fullBudget.Begin(time.Now())
	err := run()
	c.followBudget.Begin(time.Now())
	return err
}

// untilBudget is for how long neither budget allows anything.
func (c *Controller) untilBudget(now time.Time) time.Duration {
	return min(c.fullBudget.Next().Sub(now), c.followBudget.Next().Sub(now))
}

// followChanges answers without a full round, if it can. Else the answers that do not fit the cluster any more say so.
func (r *round) followChanges(ctx context.Context) error {
	if r.questionHash() == r.hashOfStatuses {
		return nil
	}
	began := time.Now()
	statuses, followed, err := r.certifier.Follow(ctx, r.objects, r.asked, r.options)
	if err != nil {
		return err
	}
	if !followed {
		r.hashOfStatuses = "" // once the cluster is again as it was, there is something to write
		r.markOutdated(ctx)
		return ctx.Err()
	}
	r.keepUnfollowed(statuses)
	r.hashOfStatuses = r.questionHash()
	if !r.writeStatuses(ctx, statuses) {
		r.hashOfStatuses = ""
	}
	klog.FromContext(ctx).V(2).Info("Followed a change", "took", time.Since(began))
	return ctx.Err()
}

// keepUnfollowed gives ZoneSurvivals that are not followed their last answer: it may not have been written.
func (r *round) keepUnfollowed(statuses []v1alpha1.ZoneSurvivalStatus) {
	for i, s := range r.asked {
		if !statuses[i].ComputedAt.Time.Equal(r.options.Sim.Now) {
			statuses[i] = r.lastAnswer(s.Name).computed
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

func (c *Controller) newRound(cluster *snapshot.Snapshot) *round {
	r := &round{Controller: c, objects: cluster.Objects(), options: c.certify}
	for _, s := range snapshot.List[*v1alpha1.ZoneSurvival](cluster) {
		r.asked = append(r.asked, s.DeepCopy())
	}
	r.options.Fingerprint = survival.Fingerprint(r.objects)
	r.options.Sim.Now, r.options.Sim.NotInstalled = cluster.TakenAt, cluster.NotInstalled()
	r.options.Missing = c.shared.Unknown(cluster)
	return r
}

// questionHash is what is asked and of which cluster, as one text.
func (r *round) questionHash() string {
	var out strings.Builder
	out.WriteString(r.options.Fingerprint)
	for _, s := range r.asked {
		fmt.Fprintf(&out, " %s/%d", s.UID, s.Generation)
	}
	return out.String() + strings.Join(r.options.Missing, " ")
}

// replayLosses replays all losses and writes the certificates. What would have to be bought is left to later turns.
func (r *round) replayLosses(ctx context.Context) error {
	var statuses []v1alpha1.ZoneSurvivalStatus
	if len(r.asked) > 0 {
		var err error
		statuses, err = r.certifier.Certify(ctx, r.objects, r.asked, r.options)
		if err != nil {
			return err
		}
	} else {
		r.certifier.Close()
	}
	r.written = r.writeStatuses(ctx, statuses)
	r.purchases.add(r, statuses)
	return ctx.Err()
}

// writeStatuses writes the statuses, and reports whether all are written.
func (r *round) writeStatuses(ctx context.Context, statuses []v1alpha1.ZoneSurvivalStatus) bool {
	r.forgetOthers()
	all := true
	for i, s := range r.asked {
		all = r.writeStatus(ctx, s, answer{statuses[i], asShown(&statuses[i], s, &r.options)}) && all
	}
	return all
}

// forgetOthers forgets the answers to ZoneSurvivals that there are no more.
func (r *round) forgetOthers() {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.answers, func(name string, _ answer) bool {
		return !slices.ContainsFunc(r.asked, func(s *v1alpha1.ZoneSurvival) bool { return s.Name == name })
	})
}

// writeStatus writes what is shown of an answer, and reports whether it is written. It is the last answer in either
// case.
func (c *Controller) writeStatus(ctx context.Context, asked *v1alpha1.ZoneSurvival, a answer) bool {
	c.mu.Lock()
	// what is held may be added to it meanwhile
	c.answers[asked.Name] = answer{*a.computed.DeepCopy(), *a.shown.DeepCopy()}
	c.mu.Unlock()
	if err := c.updateStatus(ctx, asked, a.shown); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot write the status", "zonesurvival", klog.KObj(asked))
		return false
	}
	return true
}

// updateStatus writes a status, and an event for each condition that is another one. asked becomes what is written.
func (c *Controller) updateStatus(
	ctx context.Context, asked *v1alpha1.ZoneSurvival, status v1alpha1.ZoneSurvivalStatus,
) error {
	before := asked.Status.Conditions
	written := asked.DeepCopy()
	status.DeepCopyInto(&written.Status) // the client puts the API server's answer there
	keepBuying(&written.Status, &asked.Status)
	if err := c.shared.Client.Status().Update(ctx, written); err != nil {
		return client.IgnoreNotFound(err)
	}
	*asked = *written
	for _, reasons := range events {
		old := meta.FindStatusCondition(before, reasons.condition)
		condition := meta.FindStatusCondition(status.Conditions, reasons.condition)
		if condition == nil || toldStatus(old) == toldStatus(condition) {
			continue
		}
		if err := c.shared.Client.Create(ctx, reasons.newEvent(written, condition)); err != nil {
			return err
		}
	}
	return nil
}

// keepBuying leaves in a status what another part of the controller says there.
func keepBuying(status, before *v1alpha1.ZoneSurvivalStatus) {
	status.Buy = before.Buy.DeepCopy()
	for _, kind := range []string{v1alpha1.ConditionBuying, v1alpha1.ConditionLimitedByQuotas} {
		meta.RemoveStatusCondition(&status.Conditions, kind)
		if c := meta.FindStatusCondition(before.Conditions, kind); c != nil {
			status.Conditions = append(status.Conditions, *c)
		}
	}
}

// eventReasons are the reasons of the events about a condition, by its status.
type eventReasons struct{ condition, yes, no, unknown string }

var events = []eventReasons{
	{v1alpha1.ConditionSurvives, "Survives", "DoesNotSurvive", "SurvivalUnknown"},
	{v1alpha1.ConditionHeld, "RoomHeld", "RoomNotHeld", "RoomUnknown"},
	{v1alpha1.ConditionServes, "EnoughServing", "TooFewServing", "ServingUnknown"},
}

func (r *eventReasons) newEvent(about *v1alpha1.ZoneSurvival, condition *metav1.Condition) *eventsv1.Event {
	kind, reason := v1.EventTypeNormal, r.yes
	switch condition.Status {
	case metav1.ConditionFalse:
		kind, reason = v1.EventTypeWarning, r.no
	case metav1.ConditionUnknown:
		reason = r.unknown
	}
	now := time.Now()
	e := parts.NewEvent("survival", v1.ObjectReference{
		APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "ZoneSurvival", Name: about.Name, UID: about.UID,
		ResourceVersion: about.ResourceVersion,
	}, now)
	e.Name = fmt.Sprintf("%.200s.%x", about.Name, now.UnixNano())
	e.Type, e.Reason, e.Action, e.Note = kind, reason, "Replay", crd.Shortened(condition.Message)
	return e
}
