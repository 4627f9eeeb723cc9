package survival

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/internal/crd"
	"zonewise.dev/internal/message"
	"zonewise.dev/sim"
)

const (
	// DefaultReplays is how many times each loss is replayed in each form, unless Options say otherwise. Of a loss that
	// displaces many pods fewer replays are enough, at least one: as many as have enoughPods. A loss that displaces few
	// pods is more a matter of luck, and its replays are cheap: it has as many as have fewPods, up to mostReplays.
	DefaultReplays = 2
	mostReplays    = 3 * DefaultReplays
	enoughPods     = 30_000
	fewPods        = 1_200

	maxWitnesses = 10
	// maxNodeLosses is how many losses of nodes a status has, the worst.
	maxNodeLosses = 10

	// All losses of a status together have so many witnesses and margins, so that it fits into etcd: of many zones each
	// has fewer.
	allWitnesses = 100
	allMargins   = 2_000
)

// Options say how losses are replayed.
type Options struct {
	// Sim is how the scheduler runs on the copies. Its Now is the time at which the cluster was read. Each replay has
	// another seed, from Seed on, and its own Rank.
	Sim sim.Options
	// Replays is how many times each loss is replayed in each of its two forms. 0 is DefaultReplays, 1 for losses of
	// more than 15,000 pods, and more for losses of fewer than 600, up to 6.
	Replays int
	// Fingerprint is that of the objects, for a caller that has computed it; empty for others.
	Fingerprint string
	// Scheduler is a digest of what else decides an answer: of the scheduler, and of how losses are replayed.
	Scheduler string
	// Missing says in a line each what of the cluster could not be read. If it is not empty, no answer is given.
	Missing []string
}

// replaysOf returns how many times to replay a loss that displaces so many pods in each form.
func (o *Options) replaysOf(displaced int) int {
	if o.Replays > 0 {
		return o.Replays
	}
	displaced = max(1, displaced)
	return max(1, min(DefaultReplays, enoughPods/displaced), min(mostReplays, fewPods/displaced))
}

// Certify replays the losses that are asked for on a copy of the cluster, and returns the status of each ZoneSurvival,
// in their order: what a replay finds out. What is held, what serves and what is bought is not in it, and the
// conditions about that stay as they were. All of them share the replays. The objects are those of the kinds of
// kinds.All, and are not modified. An error is that of ctx; everything else that goes wrong is in the statuses.
func Certify(
	ctx context.Context, objects []client.Object, asked []*v1alpha1.ZoneSurvival, options Options,
) ([]v1alpha1.ZoneSurvivalStatus, error) {
	var c Certifier
	return c.Certify(ctx, objects, asked, options)
}

// statusesOf are what certificates come to. failed, if not nil, is the condition of all that are valid.
func statusesOf(
	certificates []*certificate, objects []client.Object, options *Options, failed *metav1.Condition,
) []v1alpha1.ZoneSurvivalStatus {
	snapshot := v1alpha1.SurvivalSnapshot{Hash: options.Fingerprint, Scheduler: options.Scheduler}
	if snapshot.Hash == "" {
		snapshot.Hash = Fingerprint(objects)
	}
	for _, obj := range objects {
		switch obj.(type) {
		case *v1.Node:
			snapshot.Nodes++
		case *v1.Pod:
			snapshot.Pods++
		}
	}
	out := make([]v1alpha1.ZoneSurvivalStatus, len(certificates))
	for i, c := range certificates {
		c.status.Snapshot, c.status.ComputedAt = snapshot, metav1.Time{Time: options.Sim.Now}
		condition := c.conclude()
		if failed != nil && c.invalid == nil {
			condition = *failed
		}
		condition.Type, condition.ObservedGeneration, condition.LastTransitionTime = v1alpha1.ConditionSurvives, c.asked.Generation, c.status.ComputedAt
		c.status.Conditions = slices.Clone(c.asked.Status.Conditions)
		meta.SetStatusCondition(&c.status.Conditions, condition)
		out[i] = c.status
	}
	return out
}

func compareByName(a, b *v1.Pod) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}

// certificate is what is found out for one ZoneSurvival.
type certificate struct {
	asked     *v1alpha1.ZoneSurvival
	protects  func(pod *v1.Pod) bool
	invalid   error
	status    v1alpha1.ZoneSurvivalStatus
	resources map[v1.ResourceName]bool // what the protected pods ask for
	// zones are those whose loss is replayed, absent the ones that were asked for and have no node.
	zones, absent []string
	// losses are those that were replayed.
	losses map[loss]*lossResult
	// failed has the error of a replay, in a line.
	failed string
	// replacedBy has the kinds of the controllers that have replaced displaced pods.
	replacedBy map[string]bool
	// placedFor has the other schedulers of displaced pods, which were placed as kube-scheduler would.
	placedFor map[string]bool
}

func newCertificate(asked *v1alpha1.ZoneSurvival) *certificate {
	c := &certificate{
		asked: asked, resources: map[v1.ResourceName]bool{v1.ResourceCPU: true, v1.ResourceMemory: true},
		losses: map[loss]*lossResult{}, replacedBy: map[string]bool{}, placedFor: map[string]bool{},
	}
	c.protects, c.invalid = Protected(asked)
	c.status.ObservedGeneration = asked.Generation
	return c
}

func newCertificates(asked []*v1alpha1.ZoneSurvival) []*certificate {
	out := make([]*certificate, len(asked))
	for i, s := range asked {
		out[i] = newCertificate(s)
	}
	return out
}

// Protected returns which pods are protected. An error names the field that is wrong.
func Protected(asked *v1alpha1.ZoneSurvival) (func(*v1.Pod) bool, error) {
	selects, err := Selects(asked.Spec.Workloads)
	if err != nil {
		return nil, err
	}
	return func(pod *v1.Pod) bool { return selects(pod) && !sim.NodeBound(pod) }, nil
}

// Selects returns which pods the workloads of a spec select. An error names the field that is wrong.
func Selects(workloads []v1alpha1.SurvivalWorkload) (func(*v1.Pod) bool, error) {
	selected := selection{}
	for i, w := range workloads {
		if err := selected.addSelector(w.Namespace, &w.PodSelector); err != nil {
			return nil, fmt.Errorf("spec.workloads[%d].podSelector: %w", i, err)
		}
	}
	return selected.selects, nil
}

// selection are the pods that one of its selectors selects; these are by namespace.
type selection map[string][]labels.Selector

func (s selection) addSelector(namespace string, pods *metav1.LabelSelector) error {
	selector, err := metav1.LabelSelectorAsSelector(pods)
	if err != nil {
		return err
	}
	s[namespace] = append(s[namespace], selector)
	return nil
}

func (s selection) selects(pod *v1.Pod) bool {
	return slices.ContainsFunc(s[pod.Namespace], func(pods labels.Selector) bool {
		return pods.Matches(labels.Set(pod.Labels))
	})
}

// recordBaseline notes what there is before the losses, as it was read.
func (c *certificate) recordBaseline(read *reading) {
	if c.invalid != nil {
		return
	}
	zones := map[string]bool{}
	for _, node := range read.nodes {
		if zone := node.Labels[v1.LabelTopologyZone]; zone != "" {
			zones[zone] = true
		}
	}
	for _, pod := range read.pods {
		switch {
		case !live(pod) || !c.protects(pod):
		case pod.Spec.NodeName == "":
			c.status.Waiting++
		case read.nodes[pod.Spec.NodeName] != nil:
			c.status.Pods++
			for name := range requestsOf(pod) {
				c.resources[name] = true
			}
		}
	}
	c.selectZones(zones)
}

// selectZones notes which of the cluster's zones may be lost.
func (c *certificate) selectZones(zones map[string]bool) {
	if c.asked.Spec.Survive.Zones != nil {
		c.zones = slices.Sorted(maps.Keys(zones))
	}
	for _, zone := range c.asked.Spec.Survive.ZoneNames {
		if zones[zone] {
			c.zones = append(c.zones, zone)
		} else {
			c.absent = append(c.absent, zone)
		}
	}
	slices.Sort(c.zones)
}

// lossResult is what is known of a loss.
type lossResult struct {
	loss
	// worst is the worst that it has come to in each form; nil before its first replay.
	worst [forms]*v1alpha1.SurvivalLoss
	// hint says what would help the first pod that waits; empty if nothing is known to.
	hint [forms]string
}

// form returns the form that decides: that the Node objects stay, if pods are known to wait then and at no other time.
// An answer that has followed the cluster knows one form alone.
func (r *lossResult) form() form {
	gone, stay := r.worst[nodesGone], r.worst[nodesStay]
	if gone != nil && gone.Waiting == 0 && stay != nil && stay.Waiting > 0 {
		return nodesStay
	}
	return nodesGone
}

// result is what is said of a loss: what its worse form comes to, and what is least free in both.
func (r *lossResult) result() *v1alpha1.SurvivalLoss {
	out, other := r.worst[r.form()], r.worst[nodesStay-r.form()]
	switch {
	case out == nil:
		return other
	case other == nil:
		return out
	}
	if out.Waiting == 0 && other.Displaced > out.Displaced {
		out, other = other, out
	}
	out = out.DeepCopy()
	out.NodesStay = r.form() == nodesStay
	lowerMargins(out.Margin, other.Margin)
	return out
}

// isBroken reports whether a pod waits after the loss, in that form or at all, or it is unknown.
func (c *certificate) isBroken(l loss, f form) bool {
	known := c.losses[l]
	if known == nil {
		return c.failed != ""
	}
	waits := func(f form) bool { return known.worst[f] != nil && known.worst[f].Waiting > 0 }
	return c.failed != "" || waits(f) || waits(nodesGone)
}

// recordOutcome looks at what has become of the protected pods in a replay, and keeps the worst.
func (c *certificate) recordOutcome(l loss, f form, r *outcome, err error) {
	if err != nil {
		c.failed = fmt.Sprintf("the loss of %s: %s", l, message.OneLine(err))
		return
	}
	result := &v1alpha1.SurvivalLoss{Zone: l.zone, Node: l.node, Nodes: int64(r.nodes), Margin: r.margins(c.resources)}
	hint := ""
	for i := range r.moves {
		m := &r.moves[i]
		if !c.protects(m.before) {
			continue
		}
		result.Displaced++
		if m.runs() {
			result.Placed++
			c.replacedBy[sim.ControllerKind(m.before)] = true
			if m.elsewhere {
				c.placedFor[m.before.Spec.SchedulerName] = true
			}
			continue
		}
		if result.Waiting == 0 && f == nodesStay {
			hint = hintFor(m)
		}
		result.Waiting++
		if len(result.Witnesses) < maxWitnesses {
			result.Witnesses = append(
				result.Witnesses,
				v1alpha1.SurvivalWitness{Namespace: m.before.Namespace, Name: m.before.Name, Why: crd.Shortened(m.why)},
			)
		}
	}
	known := c.losses[l]
	if known == nil {
		known = &lossResult{loss: l}
		c.losses[l] = known
	}
	previous := known.worst[f]
	switch {
	case previous == nil:
		known.worst[f], known.hint[f] = result, hint
		return
	case result.Waiting > 0 || result.Displaced > previous.Displaced:
		lowerMargins(result.Margin, previous.Margin)
		known.worst[f], known.hint[f] = result, hint
	default:
		lowerMargins(previous.Margin, result.Margin)
	}
}

// hintFor says what would help a pod that waits while the lost nodes exist: not to count them.
func hintFor(m *move) string {
	if m.now == nil || !strings.Contains(m.why, sim.SpreadRefusal) {
		return ""
	}
	for i := range m.now.Spec.TopologySpreadConstraints {
		t := &m.now.Spec.TopologySpreadConstraints[i]
		if t.WhenUnsatisfiable == v1.DoNotSchedule && ptr.Deref(t.NodeTaintsPolicy, v1.NodeInclusionPolicyIgnore) == v1.NodeInclusionPolicyIgnore {
			return fmt.Sprintf("; its constraint over %s counts these nodes, and with nodeTaintsPolicy: Honor it would not", t.TopologyKey)
		}
	}
	return ""
}

// sortedLosses returns what is said of the losses: zones by name; nodes by how bad their loss is.
func (c *certificate) sortedLosses() []*v1alpha1.SurvivalLoss {
	out := make([]*v1alpha1.SurvivalLoss, 0, len(c.losses))
	for _, known := range c.losses {
		out = append(out, known.result())
	}
	slices.SortFunc(out, func(a, b *v1alpha1.SurvivalLoss) int {
		bad := 0
		if a.Node != "" && b.Node != "" {
			bad = cmp.Or(cmp.Compare(b.Waiting, a.Waiting), cmp.Compare(b.Displaced, a.Displaced))
		}
		return cmp.Or(bad, strings.Compare(a.Zone, b.Zone), strings.Compare(a.Node, b.Node))
	})
	return out
}

// conclude puts the losses into the status, of nodes the worst, and returns the condition.
func (c *certificate) conclude() metav1.Condition {
	losses := c.sortedLosses()
	c.status.Replayed = int64(len(losses))
	for _, l := range losses {
		if l.Node == "" || len(c.status.Losses) < maxNodeLosses {
			c.status.Losses = append(c.status.Losses, *l)
		}
	}
	condition := c.condition(losses)
	fitIntoStatus(c.status.Losses)
	return condition
}

// fitIntoStatus leaves out of each loss what the status has no room for: witnesses beyond the first, and the zones that
// have most free.
func fitIntoStatus(losses []v1alpha1.SurvivalLoss) {
	witnesses, margins, left := max(1, allWitnesses/max(1, len(losses))), max(2, allMargins/max(1, len(losses))), allWitnesses
	for i := range losses {
		l := &losses[i]
		l.Witnesses = l.Witnesses[:min(len(l.Witnesses), witnesses, left)]
		left -= len(l.Witnesses)
		if len(l.Margin) > margins {
			tightest := slices.SortedStableFunc(slices.Values(l.Margin), func(a, b v1alpha1.SurvivalMargin) int {
				return cmp.Compare(leastFree(&a), leastFree(&b))
			})
			l.Margin = slices.SortedFunc(slices.Values(tightest[:margins]), func(a, b v1alpha1.SurvivalMargin) int {
				return strings.Compare(a.Zone, b.Zone)
			})
		}
	}
}

// leastFree is the fraction that is free of the resource of which least is.
func leastFree(m *v1alpha1.SurvivalMargin) float64 {
	least := 1.0
	for name, all := range m.Allocatable {
		free := m.Free[name]
		least = min(least, free.AsApproximateFloat64()/all.AsApproximateFloat64())
	}
	return least
}

// condition says what the losses come to.
func (c *certificate) condition(losses []*v1alpha1.SurvivalLoss) metav1.Condition {
	switch {
	case c.invalid != nil:
		return unknownCondition(v1alpha1.ReasonInvalid, c.invalid.Error())
	case c.status.Pods == 0:
		return unknownCondition(
			v1alpha1.ReasonNoPods, fmt.Sprintf("spec.workloads select no pod that runs; %d wait", c.status.Waiting),
		)
	}
	var most *v1alpha1.SurvivalLoss
	for _, l := range losses {
		if l.Waiting > 0 {
			known := c.losses[lossOf(l)]
			first, f := l.Witnesses[0], known.form()
			after := ""
			if f == nodesStay {
				after = known.hint[f] + "; once the nodes are deleted, all run again"
			}
			return metav1.Condition{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonPodsWait, Message: fmt.Sprintf(
				"%s, %d of %d displaced pods would wait, first %s/%s: %s%s", known.during(f), l.Waiting, l.Displaced, first.Namespace,
				first.Name, first.Why, after,
			)}
		}
		if most == nil || l.Displaced >= most.Displaced && l.Node == "" {
			most = l
		}
	}
	switch {
	case c.failed != "":
		return unknownCondition(v1alpha1.ReasonReplayFailed, c.failed)
	case len(c.absent) > 0:
		return unknownCondition(
			v1alpha1.ReasonNoZones, "spec.survive.zoneNames: no node is in "+strings.Join(c.absent, ", "),
		)
	case most == nil:
		return unknownCondition(v1alpha1.ReasonNoZones, "no node has the label "+v1.LabelTopologyZone)
	}
	return metav1.Condition{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAllPlaced, Message: fmt.Sprintf(
		"without any one of %s, all %d pods run again; at most %d are displaced, without %s", c.lossesText(losses), c.status.Pods, most.Displaced, lossOf(most)) + c.conditionsText()}
}

// conditionsText says what else has to happen for the displaced pods to run again: it is not known whether and when it
// does.
func (c *certificate) conditionsText() string {
	var kinds []string
	condition := ""
	for _, kind := range slices.Sorted(maps.Keys(c.replacedBy)) {
		switch kind {
		case "ReplicaSet.apps", "ReplicationController", "Job.batch":
		case "StatefulSet.apps":
			condition = "; those of StatefulSets once the lost nodes are deleted"
		default:
			kinds = append(kinds, kind)
		}
	}
	if len(c.placedFor) > 0 {
		condition += "; those of " + strings.Join(slices.Sorted(maps.Keys(c.placedFor)), ", ") + " are placed as kube-scheduler would"
	}
	if len(kinds) > 0 {
		condition += "; it is taken for granted that " + strings.Join(kinds, ", ") + " replace their pods"
	}
	return condition
}

// lossesText names the losses.
func (c *certificate) lossesText(losses []*v1alpha1.SurvivalLoss) string {
	if c.asked.Spec.Survive.Nodes == nil {
		return "the zones " + strings.Join(c.zones, ", ")
	}
	return fmt.Sprintf("the %d nodes that have pods", len(losses))
}

func unknownCondition(reason, message string) metav1.Condition {
	return metav1.Condition{Status: metav1.ConditionUnknown, Reason: reason, Message: message}
}
