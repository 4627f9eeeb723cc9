package survival

import (
	"context"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/internal/nodes"
	"zonewise.dev/sim"
)

// baseline is the cluster before the losses: pods on nodes that are not ready have been displaced, since nothing runs
// there, and those that wait are scheduled. What had a place is what had one in the cluster as it was read: a pod that
// is displaced or evicted on the way counts in each loss.
type baseline struct {
	state *sim.State
	// placed are the live pods that were on a node when the cluster was read.
	placed map[types.UID]*v1.Pod
	// moved are those of placed that run no more where they were, and inPlaceOfMoved the live pods that are there in
	// place of them. failed are the nodes that are not ready.
	moved, inPlaceOfMoved []*v1.Pod
	failed                map[string]bool
	replaced              map[types.UID]*v1.Pod
	usage                 *usage
	// displaced is how many pods the loss of each node would displace; nodes without any are left out.
	displaced  map[*v1.Node]int
	latecomers selection
}

func newBaseline(ctx context.Context, objects []client.Object, read *reading, options sim.Options) (*baseline, error) {
	base, err := sim.New(ctx, objects, options)
	if err != nil {
		return nil, err
	}
	defer base.Close()
	b := &baseline{placed: map[types.UID]*v1.Pod{}, failed: map[string]bool{}}
	for _, pod := range read.placed() {
		b.placed[pod.UID] = pod
	}
	base.Mark()
	down := base.Fail(func(node *v1.Node) bool { return !nodes.Ready(node) })
	for _, node := range down.Nodes {
		b.failed[node.Name] = true
	}
	if err := base.Run(ctx); err != nil {
		return nil, err
	}
	b.state, b.replaced = base.State(), base.Replaced()
	b.moved, b.inPlaceOfMoved = slices.Clone(down.Staying), slices.Clone(down.Staying)
	for _, c := range sim.Changes[*v1.Pod](base) {
		if c.Before != nil && b.placed[c.Before.UID] != nil {
			b.moved = append(b.moved, c.Before)
		}
		if c.After != nil && live(c.After) && b.placed[firstOf(c.After.UID, b.replaced)] != nil {
			b.inPlaceOfMoved = append(b.inPlaceOfMoved, c.After)
		}
	}
	all := sim.List[*v1.Pod](base)
	b.usage, b.displaced = usageOf(sim.List[*v1.Node](base), all), map[*v1.Node]int{}
	for _, pod := range all {
		if node, exists := sim.Get[*v1.Node](base, "", pod.Spec.NodeName); exists && live(pod) && !sim.NodeBound(pod) {
			b.displaced[node]++
		}
	}
	b.latecomers = latecomers(sim.List[*v1alpha1.ZoneSpreadPolicy](base))
	return b, nil
}

// placedBefore returns the pods that had a place when the cluster was read and in whose place others are, without
// doubles.
func (b *baseline) placedBefore(pods []*v1.Pod) []*v1.Pod {
	var out []*v1.Pod
	noted := map[types.UID]bool{}
	for _, pod := range pods {
		first := firstOf(pod.UID, b.replaced)
		if b.placed[first] != nil && !noted[first] {
			noted[first] = true
			out = append(out, b.placed[first])
		}
	}
	return out
}

// reading is the nodes and pods of a cluster as it was read.
type reading struct {
	nodes map[string]*v1.Node
	pods  []*v1.Pod
}

func newReading(objects []client.Object) *reading {
	r := &reading{nodes: map[string]*v1.Node{}}
	for _, obj := range objects {
		switch o := obj.(type) {
		case *v1.Node:
			r.nodes[o.Name] = o
		case *v1.Pod:
			r.pods = append(r.pods, o)
		}
	}
	return r
}

// placed returns the live pods that are on a node.
func (r *reading) placed() []*v1.Pod {
	return slices.DeleteFunc(slices.Clone(r.pods), func(pod *v1.Pod) bool { return !live(pod) || r.nodes[pod.Spec.NodeName] == nil })
}

// replayRound replays losses, and records for the certificates what they come to. At any time it has one copy of the
// cluster with a scheduler.
type replayRound struct {
	start        *baseline
	options      *Options
	certificates []*certificate
}

// newRound returns a round of replays from the cluster as it is without further losses.
func newRound(ctx context.Context, objects []client.Object, certificates []*certificate, options *Options) (*replayRound, error) {
	read := newReading(objects)
	for _, c := range certificates {
		c.recordBaseline(read)
	}
	start, err := newBaseline(ctx, objects, read, options.Sim)
	if err != nil {
		return nil, err
	}
	return &replayRound{start: start, options: options, certificates: certificates}, nil
}

// replayAll replays each loss that a certificate asks for, and notes by zone where the displaced pods go.
func replayAll(
	ctx context.Context, objects []client.Object, certificates []*certificate, options *Options, to map[string]places,
) error {
	p, err := newRound(ctx, objects, certificates, options)
	if err != nil {
		return err
	}
	if err := p.replayZones(ctx, to); err != nil {
		return err
	}
	return p.replayNodes(ctx)
}

// newReplayer returns where losses are replayed in a form and in the order of that number; the first is the worst one.
// first, if not nil, are the nodes that displaced pods try first.
func (p *replayRound) newReplayer(f form, number int, first places) *replayer {
	seed := p.options.Sim.Seed + int64(int(forms)*number+int(f))
	var rank func(pod *v1.Pod) []int64
	if number == 0 {
		rank = worstRank(p.start.latecomers, func(pod *v1.Pod) bool {
			return slices.ContainsFunc(p.certificates, func(c *certificate) bool { return c.invalid == nil && c.protects(pod) })
		})
	}
	return &replayer{start: p.start, form: f, change: func(o *sim.Options) {
		o.Seed, o.Rank, o.OneByOne = seed, rank, number%2 == 0
		if first != nil {
			o.Hint = first.of
		}
	}}
}

// wantedByZone returns the certificates that ask for the loss of each zone.
func (p *replayRound) wantedByZone() map[string][]*certificate {
	wanted := map[string][]*certificate{}
	for _, c := range p.certificates {
		for _, zone := range c.zones {
			wanted[zone] = append(wanted[zone], c)
		}
	}
	return wanted
}

// replayZones replays the losses of zones. Each replay has a copy of its own: to take the loss back would cost as much
// as another copy.
func (p *replayRound) replayZones(ctx context.Context, to map[string]places) error {
	wanted := p.wantedByZone()
	displaced := map[string]int{} // by zone
	for node, pods := range p.start.displaced {
		displaced[node.Labels[v1.LabelTopologyZone]] += pods
	}
	for _, zone := range slices.Sorted(maps.Keys(wanted)) {
		for i := range p.options.replaysOf(displaced[zone]) {
			for f := range forms {
				r, err := p.replayZone(ctx, loss{zone: zone}, f, i, wanted[zone])
				if err != nil {
					return err
				}
				if r != nil && f == nodesStay && i == 0 {
					to[zone] = r.places()
				}
			}
		}
	}
	return nil
}

// replayZone replays the loss of a zone in a form and an order, if a certificate is still to be decided. It returns nil
// if none is, or if the replay fails. An error is that of ctx.
func (p *replayRound) replayZone(ctx context.Context, l loss, f form, order int, wanted []*certificate) (*outcome, error) {
	open := slices.DeleteFunc(slices.Clone(wanted), func(c *certificate) bool { return c.isBroken(l, f) })
	if len(open) == 0 {
		return nil, nil
	}
	r, err := p.newReplayer(f, order, nil).replayOnce(ctx, l)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	for _, c := range open {
		c.recordOutcome(l, f, r, err)
	}
	return r, nil
}

// replayNodes replays the loss of each node that has pods, one after the other on the same copy.
func (p *replayRound) replayNodes(ctx context.Context) error {
	var wanted []*certificate
	for _, c := range p.certificates {
		if c.asked.Spec.Survive.Nodes != nil && c.invalid == nil {
			wanted = append(wanted, c)
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	var names []string
	all := 0
	for node, pods := range p.start.displaced {
		names = append(names, node.Name)
		all += pods
	}
	slices.Sort(names)
	for i := range p.options.replaysOf(all) {
		for f := range forms {
			s := p.newReplayer(f, i, nil)
			err := p.loseNodes(ctx, s, f, names, wanted)
			s.close()
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// loseNodes replays the losses of nodes one after the other. An error is that of ctx.
func (p *replayRound) loseNodes(ctx context.Context, s *replayer, f form, nodes []string, wanted []*certificate) error {
	for _, node := range nodes {
		l := loss{node: node}
		open := slices.DeleteFunc(slices.Clone(wanted), func(c *certificate) bool { return c.isBroken(l, f) })
		if len(open) == 0 {
			continue
		}
		r, err := s.replay(ctx, l)
		if err == nil {
			err = s.revert(ctx)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		for _, c := range open {
			c.recordOutcome(l, f, r, err) // after an error, which spoils the copy, all losses are broken
		}
	}
	return nil
}
