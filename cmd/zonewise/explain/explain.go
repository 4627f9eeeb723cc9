package explain

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/ptr"
	schedv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/cluster/census"
	"zonewise.dev/cmd/zonewise/show"
	"zonewise.dev/cmd/zonewise/status"
	"zonewise.dev/sim"
)

// The verdicts.
const (
	Bound   = "Bound"
	Waiting = "Waiting"
	Gated   = "Gated"
)

// Report explains a pod or a gang.
type Report struct {
	Pod  *Pod               `json:"pod,omitempty"`
	Now  *Now               `json:"now,omitempty"`
	Gang *GangReport        `json:"gang,omitempty"`
	Zone []ZoneFit          `json:"zones,omitempty"`
	Said []SchedulerMessage `json:"schedulerMessages,omitempty"`
	// Autoscalers is what Cluster Autoscaler and Karpenter said about the pod.
	Autoscalers []SchedulerMessage `json:"autoscalerMessages,omitempty"`
	Next        []string           `json:"suggestions,omitempty"`
	// Moves is what ZoneRebalances say about the pod.
	Moves []string `json:"moves,omitempty"`
	Gaps  []string `json:"notes,omitempty"`
}

// Pod is the pod that is explained.
type Pod struct {
	Namespace string            `json:"namespace"`
	Name      string            `json:"name"`
	Workload  string            `json:"workload"`
	Scheduler string            `json:"schedulerName"`
	Priority  int32             `json:"priority"`
	Requests  map[string]string `json:"requests"`
	Verdict   string            `json:"verdict"`
	Node      string            `json:"node,omitempty"`
	Zone      string            `json:"zone,omitempty"`
	Waits     string            `json:"waits,omitempty"`
	// Nominated says for which node it waits, and for how many pods there to end.
	Nominated string   `json:"nominated,omitempty"`
	Policies  []string `json:"policies,omitempty"`
	// DeletionCost is that of the pod's annotation, and Answers what of the policies' is not True; see status.Troubles.
	DeletionCost string   `json:"deletionCost,omitempty"`
	Answers      []string `json:"answers,omitempty"`
	Reservation  string   `json:"reservation,omitempty"`
}

// SchedulerMessage is what the scheduler said: a condition of the pod, or an event.
type SchedulerMessage struct {
	Reason string    `json:"reason"`
	Words  string    `json:"message"`
	At     time.Time `json:"at,omitzero"`
	Count  int32     `json:"count,omitempty"`
}

// Explainer explains pods and gangs of a cluster. Its methods make copies of the cluster, and change nothing in the
// census.
type Explainer struct {
	Census *census.Census
	// Options are those of the copies, see sim.Of.
	Options sim.Options
	// Command is how the reader runs the command line on this cluster, such as "zonewise --context=prod".
	Command string
}

// Pod explains a pod, which may be bound.
func (x *Explainer) Pod(ctx context.Context, p *census.Pod, events []eventsv1.Event) (*Report, error) {
	c := x.Census
	var s *sim.Sim
	var err error
	if p.Waits() {
		s, err = x.copyWith(ctx, func(pod *corev1.Pod) *corev1.Pod {
			if pod.UID == p.UID {
				return withoutGang(pod)
			}
			return nil
		})
	} else {
		s, err = sim.Of(ctx, c.Snapshot, x.Options)
	}
	if err != nil {
		return nil, err
	}
	defer s.Close()
	r := &Report{Pod: describe(c, s, p), Moves: movesOf(c, p), Gaps: c.Snapshot.Notes()}
	bySchedulers, byAutoscalers := splitByReporter(events, append(s.Profiles(), r.Pod.Scheduler))
	r.Said, r.Autoscalers = schedulerMessages(p.Pod, bySchedulers), schedulerMessages(nil, byAutoscalers)
	if key := c.GangOf(p.Pod); key != "" {
		r.Gang = countGang(c, c.Gang(key))
	}
	if s.OfOtherScheduler(p.Pod) {
		r.Gaps = append(r.Gaps, fmt.Sprintf("the configuration has no profile for the scheduler %q, but for %s; the verdicts are those of a plain kube-scheduler (see --config)",
			r.Pod.Scheduler, strings.Join(s.Profiles(), ", ")))
	}
	if !p.Waits() {
		return r, explainBound(ctx, c, s, p, r)
	}
	pod := withoutGang(p.Pod)
	answer, err := s.Evaluate(ctx, pod)
	if err != nil {
		return nil, err
	}
	r.Zone = zonesOf(c, s, p.Pod, answer)
	switch {
	case len(p.Spec.SchedulingGates) > 0:
		var gates []string
		for _, g := range p.Spec.SchedulingGates {
			gates = append(gates, g.Name)
		}
		r.Pod.Verdict = Gated
		r.Next = append(r.Next, "its scheduling gates must be removed: "+strings.Join(gates, ", "))
	case len(answer.Gates) > 0:
		for i := range answer.Gates {
			r.Next = append(r.Next, fmt.Sprintf("%s must let it into the queue: %s", answer.Gates[i].Plugin, answer.Gates[i].Message()))
		}
	case r.Gang != nil && r.Gang.Missing > 0:
		r.Next = append(r.Next, fmt.Sprintf("%s: %s explain %s -n %s says whether they fit", r.Gang.neededText(), x.Command, r.Gang.Argument(), r.Gang.Namespace))
	case len(answer.FittingNodes()) > 0:
		r.Next = append(r.Next, fmt.Sprintf("no change is needed: %s would take it. %s", show.Plural(len(answer.FittingNodes()), "node"), whenTried(r)))
	default:
		return r, x.placePod(ctx, s, pod, answer, r)
	}
	return r, nil
}

// copyWith copies the cluster. Of the pods that wait, the copy has what subjects returns for them, and those with a
// nomination for which it returns nil.
func (x *Explainer) copyWith(ctx context.Context, subjects func(*corev1.Pod) *corev1.Pod) (*sim.Sim, error) {
	options := x.Options
	options.Pods = func(pod *corev1.Pod) *corev1.Pod {
		if subject := subjects(pod); subject != nil || pod.Status.NominatedNodeName == "" {
			return subject
		}
		return pod
	}
	return sim.Of(ctx, x.Census.Snapshot, options)
}

func describe(c *census.Census, s *sim.Sim, p *census.Pod) *Pod {
	d := &Pod{
		Namespace: p.Namespace, Name: p.Name, Workload: c.Workload(p.Pod), Scheduler: cmp.Or(p.Spec.SchedulerName, corev1.DefaultSchedulerName),
		Priority: ptr.Deref(p.Spec.Priority, 0), Verdict: Waiting, Requests: map[string]string{},
	}
	for name, q := range census.Requests(p.Pod) {
		if !q.IsZero() {
			d.Requests[string(name)] = q.String()
		}
	}
	for _, policy := range policiesOf(s, p.Pod) {
		name := policy.Namespace + "/" + policy.Name
		d.Policies = append(d.Policies, name)
		for _, trouble := range status.Troubles(status.AnswersOf(policy.Status.Conditions)) {
			d.Answers = append(d.Answers, name+": "+trouble)
		}
	}
	d.DeletionCost = p.Annotations[corev1.PodDeletionCost]
	for _, reservation := range reservations(s) {
		if census.OwnedBy(reservation, p.Pod) {
			d.Reservation = reservation.Name
			break
		}
	}
	if !p.Waits() {
		d.Verdict, d.Node = Bound, p.Spec.NodeName
		if p.On != nil {
			d.Zone = p.On.Zone
		}
		return d
	}
	if !p.CreationTimestamp.IsZero() {
		d.Waits = duration.HumanDuration(c.Now.Sub(p.CreationTimestamp.Time))
	}
	d.Nominated = nominationText(c, p.Status.NominatedNodeName)
	return d
}

// autoscalers are the reporters of Cluster Autoscaler's and Karpenter's events.
var autoscalers = []string{"cluster-autoscaler", "karpenter"}

// splitByReporter returns a pod's events that the named schedulers have reported, and those of autoscalers. All other
// components' events, the kubelet's above all, are left out. An event without a reporter counts as the schedulers'.
func splitByReporter(events []eventsv1.Event, schedulers []string) (bySchedulers, byAutoscalers []eventsv1.Event) {
	for _, e := range events {
		reporter := cmp.Or(e.ReportingController, e.DeprecatedSource.Component)
		switch {
		case slices.Contains(autoscalers, reporter):
			byAutoscalers = append(byAutoscalers, e)
		case reporter == "" || slices.Contains(schedulers, reporter):
			bySchedulers = append(bySchedulers, e)
		}
	}
	return bySchedulers, byAutoscalers
}

// schedulerMessages collects what the events say, newest first, and the refusal in the pod's condition, if a pod is
// given.
func schedulerMessages(pod *corev1.Pod, events []eventsv1.Event) []SchedulerMessage {
	var out []SchedulerMessage
	for i := range events {
		e := &events[i]
		s := SchedulerMessage{Reason: e.Reason, Words: e.Note, At: e.EventTime.Time, Count: 1}
		if e.Series != nil {
			s.At, s.Count = e.Series.LastObservedTime.Time, e.Series.Count
		}
		if s.At.IsZero() {
			s.At, s.Count = e.DeprecatedLastTimestamp.Time, e.DeprecatedCount
		}
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b SchedulerMessage) int {
		return cmp.Or(b.At.Compare(a.At), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Words, b.Words))
	})
	out = distinct(out)
	out = out[:min(len(out), 5)]
	if pod == nil {
		return out
	}
	if c := census.Refusal(pod); c.Message != "" {
		said := SchedulerMessage{Reason: c.Reason, Words: c.Message, At: c.LastTransitionTime.Time}
		if !slices.ContainsFunc(out, said.saysTheSame) {
			out = slices.Insert(out, 0, said)
		}
	}
	return out
}

// distinct returns the first of the messages that say the same, with the times that its reason was given.
func distinct(messages []SchedulerMessage) []SchedulerMessage {
	var out []SchedulerMessage
	for _, m := range messages {
		at := slices.IndexFunc(out, m.saysTheSame)
		switch {
		case at < 0:
			out = append(out, m)
		case out[at].Reason == m.Reason:
			out[at].Count += m.Count
		}
	}
	return out
}

// saysTheSame reports whether the sentences of two messages are equal, whatever the number of nodes before them.
func (m SchedulerMessage) saysTheSame(other SchedulerMessage) bool {
	return sentence(m.Words) == sentence(other.Words)
}

// sentence is a scheduler's message without "0/9 nodes are available: " and the full stop.
func sentence(words string) string {
	if _, after, found := strings.Cut(words, " nodes are available: "); found {
		words = after
	}
	return strings.TrimSuffix(words, ".")
}

// withoutGang returns a copy of the pod without its gang, because here the question is about nodes, not about the other
// members.
func withoutGang(pod *corev1.Pod) *corev1.Pod {
	pod = pod.DeepCopy()
	delete(pod.Labels, schedv1alpha1.PodGroupLabel)
	pod.Spec.SchedulingGroup = nil
	return pod
}

// whenTried says when the scheduler tries a pod that would get a node.
func whenTried(r *Report) string {
	if len(r.Said) == 0 {
		return fmt.Sprintf("No scheduler has reported on it: is a scheduler called %q running?", r.Pod.Scheduler)
	}
	return "What the scheduler said is about its last attempt; it tries again when something changes, and every 5 minutes"
}
