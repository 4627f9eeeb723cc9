// Package serve writes what the leader reports about gangs of both APIs: the status of PodGroups, events, and the
// conditions of members that cannot be scheduled, which autoscalers read. It sets the nominations of members that keep
// a node, and clears those that an earlier attempt has left.
//
// # Contract
//
// Each write follows from the state of the [Gangs] at that moment, so a failed or outdated write is repeated from the
// current state. A process that does not lead writes nothing.
//
// Server has its own lock. It calls the Gangs without it, and they call it without theirs.
//
// # Non-goals
//
// The package decides nothing about scheduling. PodGroups of scheduling.x-k8s.io/v1alpha1 have no conditions, so events
// on the PodGroup replace them. Native PodGroups have no status of this kind; they get conditions instead of events, and
// kube-scheduler writes those of their pods.
package serve

import (
	"context"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	corelisters "k8s.io/client-go/listers/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/clock"
	"sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/internal/agenda"
	"zonewise.dev/internal/crd"
	"zonewise.dev/plugins/permitgate/gang"
	"zonewise.dev/plugins/permitgate/podgroup"
	"zonewise.dev/plugins/permitgate/podstatus"
)

// workers is how many jobs are done at a time.
const workers = 4

// Gangs has the gangs to report about. Its methods may be called from several goroutines; they make no request.
type Gangs interface {
	// Get returns the current state of a gang, false if it is unknown.
	Get(id podgroup.ID) (Gang, bool)
	// Members returns a gang's live pods. It costs as much as there are.
	Members(id podgroup.ID) []Member
	// IDs lists all gangs.
	IDs() []podgroup.ID
	// SetSucceeded sets which succeeded pods of a gang count towards the quorum.
	SetSucceeded(id podgroup.ID, pods sets.Set[types.UID])
}

// Gang is a gang at one moment.
type Gang struct {
	// Group is the PodGroup, nil when it does not exist.
	Group *podgroup.Group
	Phase gang.Phase
	// Reason and Detail say what keeps the members out of the queue.
	Reason gang.Reason
	Detail string
	// Last is the last rollback since the gang was whole.
	Last gang.Rollback
	// MinMember is the quorum, Live how many members there are for it, Bound how many are bound, and Lacking how many
	// more need a node.
	MinMember, Live, Bound, Lacking int
	// Unbound is how many pods have no node. ShortSince is since when a gang that lacks members has had those it has.
	Unbound    int
	ShortSince time.Time
	// PartlyBound: the gang stays bound in part; in phase Pending since members are missing.
	PartlyBound bool
	// Preempting: victims are being evicted for the gang.
	Preempting bool
	// Vain: the last cycle of a native gang has placed no member. Refusal is the proof by which it was refused, if it was.
	Vain    bool
	Refusal gang.Rollback
	// Nominated is how many pods without a node are nominated in the API.
	Nominated int
}

// Member is a live pod of a gang at one moment.
type Member struct {
	Pod *v1.Pod
	// Missing: the pod has no node, and this scheduler could schedule it now. SentBack: it has lost the node that it
	// was given.
	Missing, SentBack bool
	// KeptNode is the node that is kept for the pod after its bind has failed.
	KeptNode string
}

// Report says what happened to a gang since the last report.
type Report struct {
	podgroup.ID
	Actions gang.Actions
	Member  *v1.Pod // of the rollback
	// Gone: nothing is left of the gang.
	Gone bool
}

// Config configures a Server.
type Config struct {
	Clock  clock.WithTicker
	Source crd.Source // nil without an API server for PodGroups
	// Handle returns that of the profile with a name, or of any when it has no such plugin.
	Handle func(profile string) fwk.Handle
	Gangs  Gangs
	// Pods lists the pods that the scheduler watches.
	Pods corelisters.PodLister
	// Synced reports whether all pods and PodGroups have been seen that existed at first.
	Synced func() bool
	// ManageStatus: write the status of PodGroups.
	ManageStatus    bool
	RecoveryTimeout time.Duration
}

// Server reports about gangs. Make one with New; its methods may be called from several goroutines.
type Server struct {
	Config
	agenda *agenda.Agenda[job]
	writer *crd.Writer[*v1alpha1.PodGroup] // nil when statuses are not written

	mu       sync.Mutex // guards everything below
	leads    bool
	patcher  *podstatus.Patcher
	pods     toolscache.Indexer // the pods of gangs, finished ones too; nil before this process leads
	podsRead func() bool        // all of them have been read
	sent     map[podgroup.ID]*sentEvents
	groups   map[types.UID]podgroup.ID // by the PodGroup's UID, of those whose status is written
}

// job is something to be done for a gang, or for one of its pods.
type job struct {
	kind jobKind
	gang podgroup.ID
	pod  string // its name, for jobLeaving
}

type jobKind uint8

const (
	jobEvents      jobKind = iota
	jobConditions          // of a gang's members
	jobNominations         // of a gang's members
	jobLeaving             // the nomination of a pod that is being deleted
	jobSucceeded           // which of a gang's pods count though they have finished
	jobGroup               // the conditions of a native PodGroup
)

// New returns a server, which does nothing before Lead.
func New(c Config) *Server {
	s := &Server{
		Config: c, agenda: agenda.New[job](c.Clock),
		sent:   map[podgroup.ID]*sentEvents{},
		groups: map[types.UID]podgroup.ID{},
	}
	if c.ManageStatus && c.Source != nil {
		s.writer = crd.NewWriter(c.Source, "PodGroup", s.currentAndDesired, nil)
	}
	return s
}

// Lead starts to serve, until ctx ends. Only the leader calls it, once, and then reports every gang.
func (s *Server) Lead(ctx context.Context, h fwk.Handle) {
	s.mu.Lock()
	s.leads, s.patcher = true, podstatus.New(h)
	s.mu.Unlock()
	s.watchPods(ctx, h.ClientSet())
	go s.agenda.Run(ctx, workers, func(j job) { s.doJob(ctx, j) })
	if s.writer != nil {
		go s.writer.Run(ctx)
	}
	for _, id := range s.Gangs.IDs() {
		s.CheckNominations(id)
	}
	s.findLeaving()
}

func (s *Server) leading() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leads
}

// Idle reports whether there is nothing to do until something happens or the clock moves.
func (s *Server) Idle() bool {
	return !s.leading() || s.agenda.Idle() && (s.writer == nil || s.writer.Idle()) && s.finishedRead()
}

// PartlyBound returns how many gangs have been bound in part for RecoveryTimeout.
func (s *Server) PartlyBound() int {
	n := 0
	if !s.leading() {
		return n
	}
	for _, id := range s.Gangs.IDs() {
		g, _ := s.Gangs.Get(id)
		if kind, _ := s.partlyBoundNote(id, &g); kind != "" {
			n++
		}
	}
	return n
}

// Report receives what happened to a gang. A process that does not lead reports nothing.
func (s *Server) Report(ctx context.Context, r Report) {
	if r.Gone {
		s.forget(r.ID)
		return
	}
	g, known := s.Gangs.Get(r.ID)
	if !known {
		return
	}
	s.groupSeen(r.ID, g.Group)
	if !s.leading() {
		return
	}
	switch {
	case r.Native && g.Group != nil:
		s.agenda.AddAt(job{kind: jobGroup, gang: r.ID}, s.Clock.Now().Add(nominationGrace))
	case !r.Native:
		if g.Group != nil && s.writer != nil {
			s.writer.Later(r.Namespace, g.Group.GetUID(), statusPause)
		}
		s.sendEvents(ctx, r, &g)
	}
	if r.Actions.Rollback != nil {
		s.queueConditions(r.ID, &g)
	}
	if r.Actions.Rollback != nil || r.Actions.BindFailed || g.Nominated > 0 || g.Preempting {
		s.CheckNominations(r.ID)
	}
}

// A job that failed is done again after jobRetry, then after twice as long each time.
const (
	jobRetry      = 250 * time.Millisecond
	jobRetryLimit = time.Minute
)

// doJob does a job, or has it done again if it fails.
func (s *Server) doJob(ctx context.Context, j job) {
	var err error
	switch j.kind {
	case jobEvents:
		if g, known := s.Gangs.Get(j.gang); known {
			s.sendEvents(ctx, Report{ID: j.gang}, &g)
		}
	case jobConditions:
		err = s.writeConditions(ctx, j.gang)
	case jobNominations:
		err = s.correctNominations(ctx, j.gang)
	case jobLeaving:
		err = s.clearLeaving(ctx, j)
	case jobSucceeded:
		s.Gangs.SetSucceeded(j.gang, succeeded(s.podsOf(j.gang)))
	case jobGroup:
		err = s.writeGroup(ctx, j.gang)
	}
	switch {
	case err == nil:
		s.agenda.Forget(j)
		return
	case ctx.Err() != nil:
		return
	case !apierrors.IsConflict(err): // after a conflict the informer will show the change
		klog.FromContext(ctx).Error(err, "Could not write what is due about a gang; will try again", "podGroup", j.gang)
	}
	s.agenda.Retry(j, jobRetry, jobRetryLimit)
}

func (s *Server) forget(id podgroup.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.sent[id]; t != nil {
		delete(s.groups, t.group)
		delete(s.sent, id)
	}
}
