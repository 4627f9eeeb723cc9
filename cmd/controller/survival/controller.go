package survival

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/cmd/controller/parts"
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
	// fullBudget bounds what the process uses from one full round to the next, and followBudget what it uses to read
	// the cluster between them and to follow it: half as much, so that the next full round comes after twice the time
	// at most.
	fullBudget, followBudget parts.Meter
	// running is the full round that is not over; nil between rounds.
	running *fullRound
	// answered is the question that the answers are for: that of the last full round, or of the cluster that they have
	// followed since.
	answered string
	// lastRound is the question of the last full round. It was read at fullRoundAt and took fullRoundTook.
	lastRound     string
	fullRoundAt   time.Time
	fullRoundTook time.Duration

	// seen is when a zone last had a node for the pods of a reservation, or was in that at the first look; nil before
	// it.
	seen map[reservedZone]time.Time

	mu      sync.Mutex // guards answers
	answers map[types.UID]*answer
}

// New returns the part.
func New(shared parts.Shared, options Options) *Controller {
	c := &Controller{
		options: options, certify: survival.Options{Sim: shared.Sim, Replays: options.Replays}, shared: shared,
		answers: map[types.UID]*answer{}, fullBudget: shared.NewMeter(1), followBudget: shared.NewMeter(0.5),
	}
	c.certify.Scheduler = schedulerHash(&c.certify)
	return c
}

// renewAnswers looks at the cluster: it brings the reservations and all statuses up to date, and begins a full round if
// the cluster has changed, or if the answers are old, and the budget allows it. It returns after how long it wants to
// be called again if nothing changes.
func (c *Controller) renewAnswers(ctx context.Context) (wait time.Duration, err error) {
	began := time.Now()
	if until := c.untilBudget(began); until > 0 {
		return until, nil // to read the cluster costs CPU, too
	}
	c.followBudget.Begin(began)
	defer c.followBudget.End()
	cluster := c.shared.Read()
	r := c.newRound(cluster)
	if len(r.options.Missing) > 0 {
		r.writeStatuses(ctx)
		return c.options.RefreshInterval, nil
	}
	c.noteReservedZones(cluster)
	wait = c.options.RefreshInterval
	question := r.questionHash()
	age := cluster.TakenAt.Sub(c.fullRoundAt)
	untilRound := c.fullBudget.Next().Sub(began)
	slow := c.fullRoundAt.IsZero() || c.fullRoundTook > slowRound
	switch {
	case c.running != nil:
		r.answerIsNear = time.Since(c.running.began) < slowRound && !slow
	case question == c.lastRound && age < c.options.RefreshInterval:
		wait = c.options.RefreshInterval - age
	case untilRound > 0:
		wait = min(untilRound, wait)
	default:
		r.answerIsNear = !slow
		defer c.beginRound(ctx, r, question)
	}
	if c.running == nil && !r.answerIsNear {
		if err := r.followChanges(ctx, question); err != nil {
			return 0, err
		}
	}
	r.holdRoom(ctx)
	r.writeStatuses(ctx)
	return wait, nil
}

// untilBudget is for how long neither budget allows anything.
func (c *Controller) untilBudget(now time.Time) time.Duration {
	return min(c.fullBudget.Next().Sub(now), c.followBudget.Next().Sub(now))
}

// followChanges has the answers follow a change without a full round, as far as they can.
func (r *round) followChanges(ctx context.Context, question string) error {
	if question == r.answered {
		return nil
	}
	began := time.Now()
	statuses, followed, err := r.certifier.Follow(ctx, r.objects, r.asked, r.options)
	if err != nil || !followed {
		return err
	}
	r.answered = question
	for uid, status := range statuses {
		r.setAnswer(uid, status)
	}
	klog.FromContext(ctx).V(2).Info("Followed a change", "took", time.Since(began))
	return nil
}

// round is what one look at the cluster leads to.
type round struct {
	*Controller
	objects []client.Object
	// asked are copies: each has the status that the cluster shows, and the resourceVersion that the next write needs.
	asked   []*v1alpha1.ZoneSurvival
	options survival.Options
	// answerIsNear: a full round that is short is about to answer, so that answers of another cluster are not marked.
	answerIsNear bool
	// rooms has what is held for each ZoneSurvival, by UID.
	rooms map[types.UID]*v1alpha1.ZoneSurvivalStatus
}

func (c *Controller) newRound(cluster *snapshot.Snapshot) *round {
	r := &round{
		Controller: c, objects: cluster.Objects(), options: c.certify, rooms: map[types.UID]*v1alpha1.ZoneSurvivalStatus{},
	}
	for _, s := range snapshot.List[*v1alpha1.ZoneSurvival](cluster) {
		r.asked = append(r.asked, s.DeepCopy())
	}
	r.options.Fingerprint = survival.Fingerprint(r.objects)
	r.options.Sim.Now, r.options.Sim.NotInstalled = cluster.TakenAt, cluster.NotInstalled()
	r.options.Missing = c.shared.Unknown(cluster)
	r.rememberAnswers()
	return r
}

// questionHash is what is asked and of which cluster, as one text.
func (r *round) questionHash() string {
	var out strings.Builder
	out.WriteString(r.options.Fingerprint)
	for _, s := range r.asked {
		fmt.Fprintf(&out, " %s/%d", s.UID, s.Generation)
	}
	return out.String()
}

// writeStatuses writes each status that is not as it should be now. What should be shown follows from the last answer
// and the cluster, so what could not be written is written at the next look. A copy of the cluster that has not seen
// the last write yet is not the base of another one.
func (r *round) writeStatuses(ctx context.Context) {
	impaired := survival.NewImpaired(r.objects)
	for _, s := range r.asked {
		shown, stale := r.show(s, impaired)
		if stale || sameStatus(&s.Status, shown) {
			continue
		}
		from := s.ResourceVersion
		if err := r.updateStatus(ctx, s, shown); err != nil {
			klog.FromContext(ctx).Error(err, "Cannot write the status", "zonesurvival", klog.KObj(s))
			continue
		}
		if s.ResourceVersion != from {
			r.noteWritten(s.UID, from)
		}
	}
}

// updateStatus writes a status, and an event for each condition that is another one. asked becomes what is written.
func (c *Controller) updateStatus(
	ctx context.Context, asked *v1alpha1.ZoneSurvival, status *v1alpha1.ZoneSurvivalStatus,
) error {
	before := asked.Status.Conditions
	written := asked.DeepCopy()
	status.DeepCopyInto(&written.Status) // the client puts the API server's answer there
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
