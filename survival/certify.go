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
	"zonewise.dev/sim"
)

const (
	// DefaultReplays is how many times each loss is replayed, unless Options say otherwise. Of a loss that displaces many pods fewer
	// replays are enough, at least one: as many as have enoughPods.
	DefaultReplays = 3
	enoughPods     = 60_000

	// judging is added to the seeds of a certificate's replays: what is held is judged by other orders than those in which it was found.
	judging = 1 << 20

	maxWitnesses = 10
)

// Options say how losses are replayed.
type Options struct {
	// Sim is how the scheduler runs on the copies. Its Now is the time at which the cluster was read. Each replay has another
	// seed, from Seed on, and its own Order.
	Sim sim.Options
	// Replays is how many times each loss is replayed; 0 is DefaultReplays, fewer for losses of more than 20,000 pods.
	Replays int
	// Fingerprint is that of the objects, for a caller that has computed it; empty for others.
	Fingerprint string
	// Missing says in a line each what of the cluster could not be read. If it is not empty, no answer is given.
	Missing []string
}

// replaysOf returns how many times to replay a loss that displaces so many pods.
func (o *Options) replaysOf(displaced int) int {
	if o.Replays > 0 {
		return o.Replays
	}
	return min(DefaultReplays, max(1, enoughPods/max(1, displaced)))
}

// Certify replays the losses that are asked for on a copy of the cluster, and returns the status of each ZoneSurvival, in
// their order. All of them share the replays. The objects are those of the kinds of sim.Kinds, and are not modified. An
// error is that of ctx; everything else that goes wrong is in the statuses.
func Certify(ctx context.Context, objects []client.Object, asked []*v1alpha1.ZoneSurvival, options Options) ([]v1alpha1.ZoneSurvivalStatus, error) {
	certificates := make([]*certificate, len(asked))
	for i, s := range asked {
		certificates[i] = newCertificate(s)
	}
	var failed *metav1.Condition
	if len(options.Missing) > 0 {
		failed = ptr.To(unknown(v1alpha1.ReasonSnapshotIncomplete, strings.Join(options.Missing, "; ")))
	} else if err := replayAll(ctx, objects, certificates, &options); err != nil {
		failed = ptr.To(unknown(v1alpha1.ReasonReplayFailed, oneLine(err)))
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
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
	out := make([]v1alpha1.ZoneSurvivalStatus, len(asked))
	for i, c := range certificates {
		c.status.Snapshot, c.status.ComputedAt = snapshot, metav1.Time{Time: options.Sim.Now}
		condition := c.condition()
		if failed != nil && c.invalid == nil {
			condition = *failed
		}
		condition.Type, condition.ObservedGeneration, condition.LastTransitionTime = v1alpha1.ConditionSurvives, c.asked.Generation, c.status.ComputedAt
		c.status.Conditions = slices.Clone(c.asked.Status.Conditions)
		meta.SetStatusCondition(&c.status.Conditions, condition)
		out[i] = c.status
	}
	return out, nil
}

// replayAll replays each loss that a certificate asks for.
func replayAll(ctx context.Context, objects []client.Object, certificates []*certificate, options *Options) error {
	base, err := sim.New(ctx, objects, options.Sim)
	if err != nil {
		return err
	}
	defer base.Close()
	if err := base.Run(ctx); err != nil {
		return err
	}
	zones := map[string]bool{}
	for _, node := range sim.List[*v1.Node](base) {
		if zone := node.Labels[v1.LabelTopologyZone]; zone != "" {
			zones[zone] = true
		}
	}
	wanted := map[string][]*certificate{}
	for _, c := range certificates {
		c.begin(base, zones)
		for _, zone := range c.zones {
			wanted[zone] = append(wanted[zone], c)
		}
	}
	displaced := podsIn(base)
	for _, zone := range slices.Sorted(maps.Keys(wanted)) {
		for i := range options.replaysOf(displaced[zone]) {
			// A certificate that is broken needs no further replay of that loss.
			open := slices.DeleteFunc(slices.Clone(wanted[zone]), func(c *certificate) bool { return c.broken(zone) })
			if len(open) == 0 {
				break
			}
			order := func(a, b *v1.Pod) int { return worst(a, b, certificates) }
			if i > 0 {
				order = nil
			}
			r, err := newReplay(ctx, base, zone, options.Sim.Seed+judging+int64(i), order)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			for _, c := range open {
				c.judge(zone, r, err)
			}
		}
	}
	return nil
}

// podsIn returns how many pods each zone has that would be displaced.
func podsIn(base *sim.Sim) map[string]int {
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

// worst compares lost pods for the order that leaves protected ones the least room: the pods that are not protected go first,
// then the small ones, which leave room for large ones scattered.
func worst(a, b *v1.Pod, certificates []*certificate) int {
	protected := func(pod *v1.Pod) int {
		if slices.ContainsFunc(certificates, func(c *certificate) bool { return c.invalid == nil && c.protects(pod) }) {
			return 1
		}
		return 0
	}
	return cmp.Or(protected(a)-protected(b), smallFirst(a, b))
}

func smallFirst(a, b *v1.Pod) int {
	x, y := requestsOf(a), requestsOf(b)
	return cmp.Or(x.Cpu().Cmp(*y.Cpu()), x.Memory().Cmp(*y.Memory()))
}

// certificate is what is found out for one ZoneSurvival.
type certificate struct {
	asked    *v1alpha1.ZoneSurvival
	protects func(pod *v1.Pod) bool
	invalid  error
	status   v1alpha1.ZoneSurvivalStatus
	// running are the protected pods that ran before the losses, by namespace and name; resources is what they ask for.
	running   []*v1.Pod
	resources map[v1.ResourceName]bool
	// zones are those whose loss is replayed, absent the ones that were asked for and have no node.
	zones, absent []string
	// failed has the error of a replay, in a line.
	failed string
}

func newCertificate(asked *v1alpha1.ZoneSurvival) *certificate {
	c := &certificate{asked: asked, resources: map[v1.ResourceName]bool{v1.ResourceCPU: true, v1.ResourceMemory: true}}
	c.protects, c.invalid = Protected(asked)
	c.status.ObservedGeneration = asked.Generation
	return c
}

// Protected returns which pods are protected. An error names the field that is wrong.
func Protected(asked *v1alpha1.ZoneSurvival) (func(*v1.Pod) bool, error) {
	protected := selection{}
	for i, w := range asked.Spec.Workloads {
		if err := protected.add(w.Namespace, &w.PodSelector); err != nil {
			return nil, fmt.Errorf("spec.workloads[%d].podSelector: %w", i, err)
		}
	}
	return func(pod *v1.Pod) bool { return protected.has(pod) && !sim.NodeBound(pod) }, nil
}

// selection are the pods that one of its selectors selects; these are by namespace.
type selection map[string][]labels.Selector

func (s selection) add(namespace string, pods *metav1.LabelSelector) error {
	selector, err := metav1.LabelSelectorAsSelector(pods)
	if err != nil {
		return err
	}
	s[namespace] = append(s[namespace], selector)
	return nil
}

func (s selection) has(pod *v1.Pod) bool {
	return slices.ContainsFunc(s[pod.Namespace], func(of labels.Selector) bool { return of.Matches(labels.Set(pod.Labels)) })
}

// begin notes what there is before the losses.
func (c *certificate) begin(base *sim.Sim, zones map[string]bool) {
	if c.invalid != nil {
		return
	}
	for _, pod := range sim.List[*v1.Pod](base) {
		if !live(pod) || !c.protects(pod) {
			continue
		}
		if pod.Spec.NodeName == "" {
			c.status.Waiting++
		} else if _, exists := sim.Get[*v1.Node](base, "", pod.Spec.NodeName); exists {
			c.running = append(c.running, pod)
			for name := range requestsOf(pod) {
				c.resources[name] = true
			}
		}
	}
	slices.SortFunc(c.running, func(a, b *v1.Pod) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	c.status.Pods = int64(len(c.running))
	c.choose(zones)
}

// choose notes which of the cluster's zones may be lost.
func (c *certificate) choose(zones map[string]bool) {
	if c.asked.Spec.Survive.Zones != nil {
		c.zones = slices.Sorted(maps.Keys(zones))
		return
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

// loss returns what is known of a loss, nil before its first replay.
func (c *certificate) loss(zone string) *v1alpha1.SurvivalLoss {
	for i := range c.status.Losses {
		if c.status.Losses[i].Zone == zone {
			return &c.status.Losses[i]
		}
	}
	return nil
}

// broken reports whether a pod waits after the loss, or it is unknown.
func (c *certificate) broken(zone string) bool {
	loss := c.loss(zone)
	return loss != nil && loss.Waiting > 0 || c.failed != ""
}

// judge looks at what has become of the protected pods in a replay, and keeps the worst.
func (c *certificate) judge(zone string, r *replay, err error) {
	if err != nil {
		c.failed = fmt.Sprintf("the loss of zone %s: %s", zone, oneLine(err))
		return
	}
	is := v1alpha1.SurvivalLoss{Zone: zone, Nodes: int64(r.nodes), Margin: r.margin(c.resources)}
	for _, pod := range c.running {
		now := r.inPlaceOf[pod.UID]
		if now != nil && now.UID == pod.UID {
			continue
		}
		is.Displaced++
		if now != nil && now.Spec.NodeName != "" {
			is.Placed++
			continue
		}
		is.Waiting++
		if len(is.Witnesses) < maxWitnesses {
			is.Witnesses = append(is.Witnesses, v1alpha1.SurvivalWitness{Namespace: pod.Namespace, Name: pod.Name, Why: crd.Shortened(r.why(now))})
		}
	}
	was := c.loss(zone)
	if was == nil {
		c.status.Losses = append(c.status.Losses, is)
		return
	}
	least(is.Margin, was.Margin)
	if is.Waiting > 0 || is.Displaced > was.Displaced {
		*was = is
	} else {
		was.Margin = is.Margin
	}
}

// condition says what the losses come to.
func (c *certificate) condition() metav1.Condition {
	switch {
	case c.invalid != nil:
		return unknown(v1alpha1.ReasonInvalid, c.invalid.Error())
	case len(c.running) == 0:
		return unknown(v1alpha1.ReasonNoPods, fmt.Sprintf("spec.workloads select no pod that runs; %d wait", c.status.Waiting))
	}
	most := &v1alpha1.SurvivalLoss{}
	for i := range c.status.Losses {
		loss := &c.status.Losses[i]
		if loss.Waiting > 0 {
			first := loss.Witnesses[0]
			return metav1.Condition{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonPodsWait, Message: fmt.Sprintf(
				"without zone %s, %d of %d displaced pods would wait, first %s/%s: %s", loss.Zone, loss.Waiting, loss.Displaced, first.Namespace, first.Name, first.Why)}
		}
		if loss.Displaced >= most.Displaced {
			most = loss
		}
	}
	switch {
	case c.failed != "":
		return unknown(v1alpha1.ReasonReplayFailed, c.failed)
	case len(c.absent) > 0:
		return unknown(v1alpha1.ReasonNoZones, "spec.survive.zoneNames: no node is in "+strings.Join(c.absent, ", "))
	case len(c.zones) == 0:
		return unknown(v1alpha1.ReasonNoZones, "no node has the label "+v1.LabelTopologyZone)
	}
	return metav1.Condition{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAllPlaced, Message: fmt.Sprintf(
		"without any one of the zones %s, all %d pods run again; zone %s displaces most, %d", strings.Join(c.zones, ", "), c.status.Pods, most.Zone, most.Displaced)}
}

func unknown(reason, message string) metav1.Condition {
	return metav1.Condition{Status: metav1.ConditionUnknown, Reason: reason, Message: message}
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
