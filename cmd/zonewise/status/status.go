package status

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cluster/census"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/plugins/permitgate/native"
)

// Report is the cluster at a glance.
type Report struct {
	Zones        []ZoneUsage   `json:"zones"`
	Policies     []Policy      `json:"policies"`
	Reservations []Reservation `json:"reservations"`
	Survivals    []Survival    `json:"survivals"`
	Rebalances   []Rebalance   `json:"rebalances"`
	Gangs        []Gang        `json:"gangs"`
	// Waiting is how many pods have no node, and Pods are these.
	Waiting int          `json:"waitingPods"`
	Pods    []WaitingPod `json:"pods"`
	// Notes say what was left out.
	Notes []string `json:"notes,omitempty"`
}

// WaitingPod is a pod without a node.
type WaitingPod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Workload  string `json:"workload"`
	Scheduler string `json:"schedulerName"`
	// WaitsSeconds is for how long it has been there, and Message what its scheduler says.
	WaitsSeconds int64  `json:"waitsSeconds"`
	Message      string `json:"message,omitempty"`
}

// ZoneUsage is one zone of topology.kubernetes.io/zone.
type ZoneUsage struct {
	Name  string `json:"name"`
	Nodes int    `json:"nodes"`
	Ready int    `json:"ready"`
	Pods  int    `json:"pods"`
	// CPU and memory are requested shares, in percent of allocatable.
	MilliCPU            int64 `json:"milliCPURequested"`
	MilliCPUAllocatable int64 `json:"milliCPUAllocatable"`
	Memory              int64 `json:"memoryRequested"`
	MemoryAllocatable   int64 `json:"memoryAllocatable"`
}

// The states of policies, reservations, certificates and gangs, from good to bad.
const (
	OK         = "OK"
	Unknown    = "Unknown"
	Waiting    = "Waiting"
	Violated   = "Violated"
	Infeasible = "Infeasible"
	Rejected   = "Rejected"
	Filling    = "Filling"
	Expired    = "Expired"
	Partial    = "Partial"
	Breaks     = "Breaks"
	Drifted    = "Drifted"
	Stopped    = "Stopped"
)

// Policy is one ZoneSpreadPolicy.
type Policy struct {
	Namespace string                `json:"namespace"`
	Name      string                `json:"name"`
	State     string                `json:"state"`
	Pods      int64                 `json:"pods"`
	Replicas  int64                 `json:"replicas"`
	Skew      int64                 `json:"skew"`
	MaxSkew   int32                 `json:"maxSkew"`
	Zones     []v1alpha1.ZoneStatus `json:"zones"`
	Message   string                `json:"message,omitempty"`
	// Answers say what has come of spec.scaleDownPolicy and spec.buy.
	Answers []Answer `json:"answers,omitempty"`
}

// Reservation is one ZoneReservation. Its numbers count slots.
type Reservation struct {
	Name  string `json:"name"`
	State string `json:"state"`
	Mode  string `json:"mode"`
	v1alpha1.SlotCounts
	Zones   []v1alpha1.ReservationZoneStatus `json:"zones"`
	Message string                           `json:"message,omitempty"`
	// Answers say what has come of spec.buy.
	Answers []Answer `json:"answers,omitempty"`
}

// Survival is one ZoneSurvival.
type Survival struct {
	Name  string `json:"name"`
	State string `json:"state"`
	// Pods are the protected pods that run, Waiting those that waited before any loss.
	Pods    int64 `json:"pods"`
	Waiting int64 `json:"waiting"`
	// AgeSeconds is how old the answer is.
	AgeSeconds int64 `json:"ageSeconds,omitempty"`
	answered   bool
	Losses     []v1alpha1.SurvivalLoss `json:"losses"`
	// Holds is whether room is to be held, Reservations what holds it, Held what is held of it and unused, and Missing
	// what there is no room for.
	Holds        bool                           `json:"holds,omitempty"`
	Reservations []v1alpha1.SurvivalReservation `json:"reservations,omitempty"`
	Held         corev1.ResourceList            `json:"held,omitempty"`
	Missing      []v1alpha1.SurvivalMissing     `json:"missing,omitempty"`
	// Impaired is the least that is left of a workload if a zone is cut off but not gone.
	Impaired []v1alpha1.SurvivalServing `json:"impaired,omitempty"`
	Message  string                     `json:"message,omitempty"`
	// Answers say what has come of spec.buy.
	Answers []Answer `json:"answers,omitempty"`
}

// Rebalance is one ZoneRebalance.
type Rebalance struct {
	Name  string `json:"name"`
	State string `json:"state"`
	Mode  string `json:"mode"`
	// Excess is how many pods are too many in their zones, Planned how many moves the plan has, with mode Plan, and
	// UnderWay how many have begun and are not over.
	Excess   int64 `json:"excess"`
	Planned  int64 `json:"planned"`
	UnderWay int64 `json:"underWay"`
	// Moves are the first ones of the plan.
	Moves   []Move `json:"moves"`
	Message string `json:"message,omitempty"`
}

// Move is a move of the plan of a ZoneRebalance.
type Move struct {
	Batch    int64    `json:"batch"`
	Pod      string   `json:"pod"` // namespace/name
	Workload string   `json:"workload"`
	From     string   `json:"from"`
	To       []string `json:"to"`
	Rules    string   `json:"rules"`
}

// Gang is one PodGroup.
type Gang struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Native: its PodGroup is of scheduling.k8s.io.
	Native    bool   `json:"native,omitempty"`
	State     string `json:"state"`
	Phase     string `json:"phase,omitempty"`
	MinMember int    `json:"minMember"`
	// Members are live pods, Bound those with a node. Succeeded pods count for as long as their controller has live
	// ones.
	Members   int            `json:"members"`
	Bound     int            `json:"bound"`
	Succeeded int            `json:"succeeded,omitempty"`
	Zones     map[string]int `json:"zones,omitempty"`
	Message   string         `json:"message,omitempty"`
}

// Build makes the report of a namespace, or of all namespaces if it is empty.
func Build(c *census.Census, namespace string) *Report {
	r := &Report{Zones: ZonesOf(c), Policies: []Policy{}, Reservations: []Reservation{}, Survivals: []Survival{}, Rebalances: []Rebalance{}, Gangs: []Gang{}, Pods: []WaitingPod{}, Notes: c.Snapshot.Notes()}
	for _, object := range snapshot.Sorted[*v1alpha1.ZoneSpreadPolicy](c.Snapshot, namespace) {
		r.Policies = append(r.Policies, PolicyOf(object))
	}
	for _, object := range snapshot.Sorted[*v1alpha1.ZoneReservation](c.Snapshot, "") {
		r.Reservations = append(r.Reservations, ReservationOf(object))
	}
	for _, object := range snapshot.Sorted[*v1alpha1.ZoneSurvival](c.Snapshot, "") {
		r.Survivals = append(r.Survivals, SurvivalOf(object, c.Now))
	}
	for _, object := range snapshot.Sorted[*v1alpha1.ZoneRebalance](c.Snapshot, "") {
		r.Rebalances = append(r.Rebalances, RebalanceOf(object))
	}
	r.markSilent(c.Snapshot.Silent())
	for _, key := range c.GangKeys() {
		if gangNamespace, _, _ := strings.Cut(key, "/"); namespace == "" || gangNamespace == namespace {
			r.Gangs = append(r.Gangs, GangOf(c, c.Gang(key)))
		}
	}
	for _, p := range c.PodsIn(namespace) {
		if p.Waits() {
			r.Waiting++
			r.Pods = append(r.Pods, WaitingPod{
				Namespace: p.Namespace, Name: p.Name, Workload: c.Workload(p.Pod), Scheduler: p.Spec.SchedulerName,
				WaitsSeconds: int64(max(0, c.Now.Sub(p.CreationTimestamp.Time)).Seconds()), Message: census.Refusal(p.Pod).Message,
			})
		}
	}
	return r
}

// markSilent marks what only a scheduler keeps current, if none has renewed its lease for so long.
func (r *Report) markSilent(silent time.Duration) {
	if silent == 0 {
		return
	}
	r.Notes = append(r.Notes, fmt.Sprintf("no scheduler has renewed its lease for %s: what policies and reservations say is of then", duration.HumanDuration(silent)))
	for i := range r.Policies {
		r.Policies[i].State = Unknown
	}
	for i := range r.Reservations {
		r.Reservations[i].State = Unknown
	}
}

// ZonesOf returns the zones by name.
func ZonesOf(c *census.Census) []ZoneUsage {
	out := []ZoneUsage{}
	for _, room := range c.ZoneRooms() {
		out = append(out, ZoneUsage{
			Name: room.Zone, Nodes: len(room.Nodes), Ready: room.Ready, Pods: room.Pods,
			MilliCPU: room.Requested[corev1.ResourceCPU], MilliCPUAllocatable: room.Allocatable[corev1.ResourceCPU],
			Memory: room.Requested[corev1.ResourceMemory], MemoryAllocatable: room.Allocatable[corev1.ResourceMemory],
		})
	}
	return out
}

// PolicyOf returns what a policy's status says.
func PolicyOf(object *v1alpha1.ZoneSpreadPolicy) Policy {
	s := &object.Status
	p := Policy{
		Namespace: object.Namespace, Name: object.Name, Pods: s.Pods, Replicas: s.Replicas, Skew: s.Skew,
		MaxSkew: cmp.Or(object.Spec.MaxSkew, v1alpha1.DefaultMaxSkew), Zones: append([]v1alpha1.ZoneStatus{}, s.Zones...),
		Answers: AnswersOf(s.Conditions),
	}
	p.State, p.Message = stateFromConditions(
		"policy", s.Conditions,
		verdict{v1alpha1.ConditionAccepted, metav1.ConditionFalse, Rejected},
		verdict{v1alpha1.ConditionInfeasible, metav1.ConditionTrue, Infeasible},
		verdict{v1alpha1.ConditionSatisfied, metav1.ConditionFalse, Violated},
	)
	switch {
	case p.State == Violated && meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionSatisfied).Reason == v1alpha1.ReasonPodsWaiting:
		p.State = Waiting
	case p.State == OK && s.ObservedGeneration != object.Generation:
		p.State, p.Message = Unknown, fmt.Sprintf("the status is of generation %d, the spec of %d", s.ObservedGeneration, object.Generation)
	}
	return p
}

// verdict is the state of an object with a condition of that status.
type verdict struct {
	condition string
	status    metav1.ConditionStatus
	state     string
}

// stateFromConditions returns the state of an object, and the message of the condition behind it. The first verdict
// that applies counts.
func stateFromConditions(kind string, conditions []metav1.Condition, verdicts ...verdict) (state, message string) {
	if meta.FindStatusCondition(conditions, v1alpha1.ConditionAccepted) == nil {
		return Unknown, "no scheduler has seen the " + kind
	}
	for _, v := range verdicts {
		if c := meta.FindStatusCondition(conditions, v.condition); c != nil && c.Status == v.status {
			return v.state, c.Message
		}
	}
	return OK, ""
}

// ReservationOf returns what a reservation's status says.
func ReservationOf(object *v1alpha1.ZoneReservation) Reservation {
	s := &object.Status
	r := Reservation{
		Name: object.Name, Mode: string(cmp.Or(object.Spec.Mode, v1alpha1.ModeHeadroom)),
		SlotCounts: s.Slots, Zones: append([]v1alpha1.ReservationZoneStatus{}, s.Zones...),
		Answers: AnswersOf(s.Conditions),
	}
	r.State, r.Message = stateFromConditions(
		"reservation", s.Conditions,
		verdict{v1alpha1.ConditionAccepted, metav1.ConditionFalse, Rejected},
		verdict{v1alpha1.ConditionExpired, metav1.ConditionTrue, Expired},
		verdict{v1alpha1.ConditionReady, metav1.ConditionFalse, Filling},
	)
	return r
}

// oldestAnswer is the age at which an answer says nothing about the cluster any more: about twice what a full round
// takes at the most that docs/survival.md measures.
const oldestAnswer = 3 * time.Hour

// SurvivalOf returns what a ZoneSurvival's status says.
func SurvivalOf(object *v1alpha1.ZoneSurvival, now time.Time) Survival {
	s := &object.Status
	held := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionHeld)
	out := Survival{
		Name: object.Name, State: Unknown, Pods: s.Pods, Waiting: s.Waiting,
		Losses: append([]v1alpha1.SurvivalLoss{}, s.Losses...), Holds: held != nil, Reservations: s.Reservations, Held: s.Held,
		Missing: s.Missing, Impaired: s.Impaired, Message: "no controller has answered yet", Answers: AnswersOf(s.Conditions),
	}
	answer, serves := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionSurvives), meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionServes)
	if answer == nil {
		return out
	}
	out.answered = true
	out.AgeSeconds, out.Message = int64(max(0, now.Sub(s.ComputedAt.Time)).Seconds()), answer.Message
	switch {
	case s.ObservedGeneration != object.Generation:
		out.Message = fmt.Sprintf("the status is of generation %d, the spec of %d", s.ObservedGeneration, object.Generation)
	case now.Sub(s.ComputedAt.Time) > oldestAnswer:
		out.Message = fmt.Sprintf("the answer is %s old: no controller has looked at the cluster since", out.Age())
	case answer.Status == metav1.ConditionTrue && serves != nil && serves.Status == metav1.ConditionFalse:
		out.State, out.Message = Breaks, serves.Message
	case answer.Status == metav1.ConditionTrue && held != nil && held.Status != metav1.ConditionTrue:
		out.State, out.Message = OK, held.Message
	case answer.Status == metav1.ConditionTrue:
		out.State, out.Message = OK, ""
	case answer.Status == metav1.ConditionFalse:
		out.State = Breaks
	}
	return out
}

// plannedMove is a move with the ZoneRebalance whose plan has it.
type plannedMove struct {
	Move
	rebalance string
}

func (r *Report) plannedMoves() (out []plannedMove) {
	for i := range r.Rebalances {
		for _, m := range r.Rebalances[i].Moves {
			out = append(out, plannedMove{m, r.Rebalances[i].Name})
		}
	}
	return out
}

// RebalanceOf returns what a ZoneRebalance's status says.
func RebalanceOf(object *v1alpha1.ZoneRebalance) Rebalance {
	s := &object.Status
	out := Rebalance{
		Name: object.Name, State: Unknown, Mode: string(cmp.Or(object.Spec.Mode, v1alpha1.RebalancePlan)), Excess: s.Excess, Planned: s.Planned, Moves: []Move{},
		Message: "no controller has answered yet",
	}
	for i := range s.Moves {
		if state := s.Moves[i].State; state == v1alpha1.MoveEvicting || state == v1alpha1.MoveEvicted {
			out.UnderWay++
		}
	}
	for i := range s.Plan {
		m := &s.Plan[i]
		out.Moves = append(out.Moves, Move{Batch: m.Batch, Pod: m.Namespace + "/" + m.Name, Workload: m.Workload, From: m.From, To: m.To, Rules: m.Rules})
	}
	ready, balanced := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReady), meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionBalanced)
	stopped := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionStopped)
	switch {
	case ready == nil || balanced == nil:
	case s.ObservedGeneration != object.Generation:
		out.Message = fmt.Sprintf("the status is of generation %d, the spec of %d", s.ObservedGeneration, object.Generation)
	case stopped != nil && stopped.Status == metav1.ConditionTrue:
		out.State, out.Message = Stopped, stopped.Message
	case ready.Reason == v1alpha1.ReasonInvalid:
		out.State, out.Message = Rejected, ready.Message
	case ready.Status != metav1.ConditionTrue:
		out.Message = ready.Message
	case balanced.Status == metav1.ConditionTrue:
		out.State, out.Message = OK, ""
	case balanced.Status == metav1.ConditionFalse:
		out.State, out.Message = Drifted, balanced.Message
	default:
		out.Message = balanced.Message
	}
	return out
}

// Title is how a gang is called: "namespace/name", and "namespace/name (native)" if its PodGroup is of
// scheduling.k8s.io.
func (g *Gang) Title() string { return census.Key(g.Namespace, g.Name, g.Native) }

// Argument is what zonewise explain calls its PodGroup.
func (g *Gang) Argument() string {
	if g.Native {
		return "podgroup.scheduling.k8s.io/" + g.Name
	}
	return "podgroup/" + g.Name
}

// GangOf counts one gang.
func GangOf(c *census.Census, from *census.Gang) Gang {
	g := Gang{
		Namespace: from.Namespace, Name: from.Name, Native: from.Native,
		MinMember: from.MinMember(), Members: len(from.Members), Bound: from.Bound, Succeeded: from.Done, Zones: map[string]int{},
	}
	if from.Group != nil {
		g.Phase = string(from.Group.Status.Phase)
	} else if g.Members == 0 && meta.IsStatusConditionTrue(from.Conditions(), initiallyScheduled) {
		g.Phase = finished
	}
	for _, p := range from.Members {
		if p.On != nil {
			g.Zones[p.On.Zone]++
		} else if said := census.Refusal(p.Pod).Message; g.Message == "" || said != "" && said < g.Message {
			g.Message = said
		}
	}
	g.setState(c, from)
	return g
}

// finished is the phase of gangs whose pods have all ended.
const finished = "Finished"

// initiallyScheduled is kube-scheduler's condition of native PodGroups.
const initiallyScheduled = "PodGroupInitiallyScheduled"

// waitConditions are the conditions of native PodGroups, PermitGate's and kube-scheduler's, that say why one waits; the
// most telling first.
var waitConditions = []string{native.ConditionFits, native.ConditionReleased, initiallyScheduled}

func (g *Gang) setState(c *census.Census, from *census.Gang) {
	exist, settled := g.Members+g.Succeeded, g.Bound+g.Succeeded
	g.State = Waiting
	if from.Exists() && g.MinMember > 0 && g.Bound > 0 {
		g.State = Partial
	}
	for _, kind := range waitConditions {
		if c := meta.FindStatusCondition(from.Conditions(), kind); c != nil && c.Status == metav1.ConditionFalse && g.Message == "" {
			g.Message = c.Message
		}
	}
	switch {
	case !from.Exists():
		g.Message = "its PodGroup does not exist"
		if !c.Snapshot.Has(from.Resource()) {
			g.State, g.Message = Unknown, "its PodGroup could not be read"
		}
	case g.MinMember < 1:
		g.Message = fmt.Sprintf("%s is %d, must be at least 1", from.MinMemberField(), g.MinMember)
	case settled >= g.MinMember && g.Members > 0 || g.Phase == finished:
		g.State, g.Message = OK, ""
	case exist < g.MinMember:
		g.Message = fmt.Sprintf("%d of %d members exist", exist, g.MinMember)
	}
}
