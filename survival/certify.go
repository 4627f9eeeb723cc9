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
	// DefaultReplays is how many times each loss is replayed, unless Options say otherwise. Of a loss that displaces
	// many pods fewer replays are enough, at least one: as many as have enoughPods. A loss that displaces few pods is
	// more a matter of luck, and its replays are cheap: a certificate has as many as have fewPods, up to mostReplays.
	DefaultReplays = 3
	mostReplays    = 4 * DefaultReplays
	enoughPods     = 60_000
	fewPods        = 2_400

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
	// Replays is how many times each loss is replayed. 0 is DefaultReplays, fewer for losses of more than 20,000 pods,
	// and in certificates more for losses of fewer than 800, up to 12.
	Replays int
	// Fingerprint is that of the objects, for a caller that has computed it; empty for others.
	Fingerprint string
	// Missing says in a line each what of the cluster could not be read. If it is not empty, no answer is given.
	Missing []string
}

// replaysOf returns how many times to replay a loss that displaces so many pods, if a loss of few pods has most
// replays.
func (o *Options) replaysOf(displaced, most int) int {
	if o.Replays > 0 {
		return o.Replays
	}
	displaced = max(1, displaced)
	return max(1, min(DefaultReplays, enoughPods/displaced), min(most, fewPods/displaced))
}

// Certify replays the losses that are asked for on a copy of the cluster, and returns the status of each ZoneSurvival,
// in their order. All of them share the replays. The objects are those of the kinds of kinds.All, and are not modified.
// An error is that of ctx; everything else that goes wrong is in the statuses.
func Certify(
	ctx context.Context, objects []client.Object, asked []*v1alpha1.ZoneSurvival, options Options,
) ([]v1alpha1.ZoneSurvivalStatus, error) {
	var c Certifier
	defer c.Close()
	return c.Certify(ctx, objects, asked, options)
}

// statusesOf are what certificates come to. failed, if not nil, is the condition of all that are valid.
func statusesOf(
	certificates []*certificate, objects []client.Object, options *Options, failed *metav1.Condition,
) []v1alpha1.ZoneSurvivalStatus {
	snapshot := v1alpha1.SurvivalSnapshot{Hash: options.Fingerprint}
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
	impaired := NewImpaired(objects)
	for i, c := range certificates {
		c.status.Snapshot, c.status.ComputedAt = snapshot, metav1.Time{Time: options.Sim.Now}
		condition := c.conclude()
		if failed != nil && c.invalid == nil {
			condition = *failed
		}
		condition.Type, condition.ObservedGeneration, condition.LastTransitionTime = v1alpha1.ConditionSurvives, c.asked.Generation, c.status.ComputedAt
		held := &c.asked.Status // what is held is not found out here, and stays what it was
		c.status.Reservations, c.status.Held, c.status.Missing = slices.Clone(held.Reservations), held.Held.DeepCopy(), slices.Clone(held.Missing)
		if condition.Status == metav1.ConditionFalse {
			c.status.WouldSurviveWith = held.WouldSurviveWith.DeepCopy() // nor is that
		}
		c.status.Conditions = slices.Clone(held.Conditions)
		meta.SetStatusCondition(&c.status.Conditions, condition)
		impaired.Answer(c.asked, c.status.ComputedAt, &c.status)
		out[i] = c.status
	}
	return out
}

// replayRound replays losses, and records for the certificates what they come to.
type replayRound struct {
	base         *sim.Sim
	before       *usage
	options      *Options
	certificates []*certificate
	// kept has for each zone the copy after its loss: that of the replay after which pods wait, else that of the first.
	// A zone is absent if no copy shows all that is known to wait.
	kept map[string]*replayer
}

// replayAll replays each loss that a certificate asks for.
func replayAll(
	ctx context.Context, objects []client.Object, certificates []*certificate, options *Options,
) (map[string]*replayer, error) {
	base, err := sim.New(ctx, objects, options.Sim)
	if err != nil {
		return nil, err
	}
	defer base.Close()
	if err := base.Run(ctx); err != nil {
		return nil, err
	}
	nodes, pods := sim.List[*v1.Node](base), sim.List[*v1.Pod](base)
	for _, c := range certificates {
		c.recordBaseline(nodes, pods)
	}
	p := &replayRound{
		base: base, before: usageOf(nodes, pods), options: options, certificates: certificates,
		kept: map[string]*replayer{},
	}
	err = p.replayZones(ctx)
	if err == nil {
		err = p.replayNodes(ctx)
	}
	if len(base.Evicted()) > 0 { // before any loss: the copies do not know which of their pods stand for those of the cluster
		for zone := range p.kept {
			p.dropCopy(zone)
		}
	}
	return p.kept, err
}

// dropCopy gives up the copy that is kept for a zone.
func (p *replayRound) dropCopy(zone string) {
	p.kept[zone].close()
	delete(p.kept, zone)
}

// copyForOrder returns where losses are replayed in the order of that number; the first is the worst one.
func (p *replayRound) copyForOrder(number int) *replayer {
	protects := func(pod *v1.Pod) bool {
		return slices.ContainsFunc(p.certificates, func(c *certificate) bool {
			return c.invalid == nil && c.protects(pod)
		})
	}
	rank := rankOf(number, latecomers(sim.List[*v1alpha1.ZoneSpreadPolicy](p.base)), protects)
	return newReplayer(p.base, p.before, p.options.Sim.Seed+int64(number), rank)
}

// replayZones replays the losses of zones. Each replay has a copy of its own: to take the loss back would cost as much
// as another copy.
func (p *replayRound) replayZones(ctx context.Context) error {
	wanted := map[string][]*certificate{}
	for _, c := range p.certificates {
		for _, zone := range c.zones {
			wanted[zone] = append(wanted[zone], c)
		}
	}
	displaced := displacedByZone(p.base)
	for _, zone := range slices.Sorted(maps.Keys(wanted)) {
		l := &loss{zone: zone}
		breaking := 0 // replays
		for i := range p.options.replaysOf(displaced[zone], mostReplays) {
			// A certificate that is broken needs no further replay of that loss.
			open := slices.DeleteFunc(slices.Clone(wanted[zone]), func(c *certificate) bool { return c.isBroken(l) })
			if len(open) == 0 {
				break
			}
			s := p.copyForOrder(i)
			r, err := s.replay(ctx, l)
			if ctx.Err() != nil {
				s.close()
				return ctx.Err()
			}
			waits := false
			for _, c := range open {
				c.recordOutcome(l, r, err)
				waits = waits || c.isBroken(l)
			}
			if waits {
				breaking++
			}
			if last := p.kept[zone]; err == nil && (last == nil || waits) {
				last.close()
				s.base, s.before = nil, nil // as large as what is kept, and no longer needed
				p.kept[zone] = s
			} else {
				s.close()
			}
		}
		if breaking > 1 { // after each of these replays pods of another ZoneSurvival wait
			p.dropCopy(zone)
		}
	}
	return nil
}

// replayNodes replays the losses of nodes: in each order the likely worst sets, and as many others as it takes for each
// node to be in one.
func (p *replayRound) replayNodes(ctx context.Context) error {
	for _, c := range p.certificates {
		n := int(ptr.Deref(c.asked.Spec.Survive.Nodes, 0))
		if n == 0 || c.invalid != nil {
			continue
		}
		loads := c.nodeLoads(sim.List[*v1.Node](p.base), sim.List[*v1.Pod](p.base))
		displaced := 0
		for _, l := range loads {
			displaced += l.pods
		}
		for i := range p.options.replaysOf(displaced, mostReplays) {
			s := p.copyForOrder(i)
			err := c.loseNodes(
				ctx, s, append(c.heaviest(loads, n), partition(loads, n, p.options.Sim.Seed+int64(i))...),
			)
			s.close()
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// loseNodes replays losses one after the other. An error is that of ctx.
func (c *certificate) loseNodes(ctx context.Context, s *replayer, losses []*loss) error {
	for _, l := range losses {
		if c.isBroken(l) {
			continue
		}
		r, err := s.replay(ctx, l)
		if err == nil {
			err = s.revert(ctx)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		c.recordOutcome(l, r, err) // after an error, which spoils the copy, all losses are broken
	}
	return nil
}

// displacedByZone returns how many pods each zone has that would be displaced.
func displacedByZone(base *sim.Sim) map[string]int {
	out := map[string]int{}
	for _, pod := range sim.List[*v1.Pod](base) {
		if pod.Spec.NodeName == "" || !live(pod) || sim.NodeBound(pod) {
			continue
		}
		if node, exists := sim.Get[*v1.Node](base, "", pod.Spec.NodeName); exists {
			out[node.Labels[v1.LabelTopologyZone]]++
		}
	}
	return out
}

func compareByName(a, b *v1.Pod) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}

// certificate is what is found out for one ZoneSurvival.
type certificate struct {
	asked    *v1alpha1.ZoneSurvival
	protects func(pod *v1.Pod) bool
	invalid  error
	// workloads are what each entry of spec.workloads selects.
	workloads []selection
	status    v1alpha1.ZoneSurvivalStatus
	resources map[v1.ResourceName]bool // what the protected pods ask for
	// zones are those whose loss is replayed, absent the ones that were asked for and have no node.
	zones, absent []string
	// losses are those that were replayed, by their keys.
	losses map[string]*lossResult
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
		losses: map[string]*lossResult{}, replacedBy: map[string]bool{}, placedFor: map[string]bool{},
	}
	c.protects, c.invalid = Protected(asked)
	for i := range asked.Spec.Workloads {
		w := selection{}
		_ = w.addSelector(asked.Spec.Workloads[i].Namespace, &asked.Spec.Workloads[i].PodSelector) // else it is invalid
		c.workloads = append(c.workloads, w)
	}
	c.status.ObservedGeneration = asked.Generation
	return c
}

// Protected returns which pods are protected. An error names the field that is wrong.
func Protected(asked *v1alpha1.ZoneSurvival) (func(*v1.Pod) bool, error) {
	protected := selection{}
	for i, w := range asked.Spec.Workloads {
		if err := protected.addSelector(w.Namespace, &w.PodSelector); err != nil {
			return nil, fmt.Errorf("spec.workloads[%d].podSelector: %w", i, err)
		}
	}
	return func(pod *v1.Pod) bool { return protected.selects(pod) && !sim.NodeBound(pod) }, nil
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

// recordBaseline notes what there is before the losses.
func (c *certificate) recordBaseline(nodes []*v1.Node, pods []*v1.Pod) {
	if c.invalid != nil {
		return
	}
	zones, exists := map[string]bool{}, map[string]bool{}
	for _, node := range nodes {
		exists[node.Name] = true
		if zone := node.Labels[v1.LabelTopologyZone]; zone != "" {
			zones[zone] = true
		}
	}
	for _, pod := range pods {
		switch {
		case !live(pod) || !c.protects(pod):
		case pod.Spec.NodeName == "":
			c.status.Waiting++
		case exists[pod.Spec.NodeName]:
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
	*loss
	result v1alpha1.SurvivalLoss
}

// isBroken reports whether a pod waits after the loss, or it is unknown.
func (c *certificate) isBroken(l *loss) bool {
	worst := c.losses[l.key()]
	return worst != nil && worst.result.Waiting > 0 || c.failed != ""
}

// recordOutcome looks at what has become of the protected pods in a replay, and keeps the worst.
func (c *certificate) recordOutcome(l *loss, r *outcome, err error) {
	if err != nil {
		c.failed = fmt.Sprintf("the loss of %s: %s", l, message.OneLine(err))
		return
	}
	result := v1alpha1.SurvivalLoss{
		Zone: l.zone, NodeNames: l.nodes, Nodes: int64(r.nodes), Margin: r.margins(c.resources),
	}
	for _, m := range r.moves {
		if !c.protects(m.before) {
			continue
		}
		result.Displaced++
		if m.now != nil && m.now.Spec.NodeName != "" {
			result.Placed++
			c.replacedBy[sim.ControllerKind(m.before)] = true
			if m.elsewhere {
				c.placedFor[m.before.Spec.SchedulerName] = true
			}
			continue
		}
		result.Waiting++
		if len(result.Witnesses) < maxWitnesses {
			result.Witnesses = append(
				result.Witnesses,
				v1alpha1.SurvivalWitness{Namespace: m.before.Namespace, Name: m.before.Name, Why: crd.Shortened(m.why)},
			)
		}
	}
	previous := c.losses[l.key()]
	if previous == nil {
		c.losses[l.key()] = &lossResult{l, result}
		return
	}
	lowerMargins(result.Margin, previous.result.Margin)
	if result.Waiting > 0 || result.Displaced > previous.result.Displaced {
		previous.result = result
	} else {
		previous.result.Margin = result.Margin
	}
}

// sortedLosses returns the losses: zones by name; sets of nodes by how bad their loss is.
func (c *certificate) sortedLosses() []*lossResult {
	return slices.SortedFunc(maps.Values(c.losses), func(a, b *lossResult) int {
		bad := 0
		if a.nodes != nil && b.nodes != nil {
			bad = cmp.Or(
				cmp.Compare(b.result.Waiting, a.result.Waiting), cmp.Compare(b.result.Displaced, a.result.Displaced),
			)
		}
		return cmp.Or(bad, strings.Compare(a.key(), b.key()))
	})
}

// conclude puts the losses into the status, of nodes the worst, and returns the condition.
func (c *certificate) conclude() metav1.Condition {
	losses := c.sortedLosses()
	c.status.Replayed = int64(len(losses))
	for _, l := range losses {
		if l.nodes == nil || len(c.status.Losses) < maxNodeLosses {
			c.status.Losses = append(c.status.Losses, l.result)
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
func (c *certificate) condition(losses []*lossResult) metav1.Condition {
	switch {
	case c.invalid != nil:
		return unknownCondition(v1alpha1.ReasonInvalid, c.invalid.Error())
	case c.status.Pods == 0:
		return unknownCondition(
			v1alpha1.ReasonNoPods, fmt.Sprintf("spec.workloads select no pod that runs; %d wait", c.status.Waiting),
		)
	}
	var most *lossResult
	for _, l := range losses {
		if l.result.Waiting > 0 {
			first := l.result.Witnesses[0]
			return metav1.Condition{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonPodsWait, Message: fmt.Sprintf(
				"without %s, %d of %d displaced pods would wait, first %s/%s: %s", l.loss, l.result.Waiting, l.result.Displaced, first.Namespace, first.Name, first.Why)}
		}
		if most == nil || l.result.Displaced >= most.result.Displaced && l.nodes == nil {
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
		"without any one of %s, all %d pods run again; at most %d are displaced, without %s", c.lossesText(losses), c.status.Pods, most.result.Displaced, most.loss) + c.conditionsText()}
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
func (c *certificate) lossesText(losses []*lossResult) string {
	switch n := ptr.Deref(c.asked.Spec.Survive.Nodes, 0); n {
	case 0:
		return "the zones " + strings.Join(c.zones, ", ")
	case 1:
		return fmt.Sprintf("the %d nodes that have pods", len(losses))
	default:
		return fmt.Sprintf("%d sets of %d nodes", len(losses), n)
	}
}

func unknownCondition(reason, message string) metav1.Condition {
	return metav1.Condition{Status: metav1.ConditionUnknown, Reason: reason, Message: message}
}
