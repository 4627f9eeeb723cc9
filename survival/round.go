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
	sim *sim.Sim
	// placed are the live pods that were on a node when the cluster was read.
	placed map[types.UID]*v1.Pod
	// moved are those of placed that run no more where they were, and inPlaceOfMoved the live pods that are there in
	// place of them. failed are the nodes that are not ready.
	moved, inPlaceOfMoved []*v1.Pod
	failed                map[string]bool
	replaced              map[types.UID]*v1.Pod
	usage                 *usage
}

func newBaseline(ctx context.Context, objects []client.Object, read *reading, options sim.Options) (*baseline, error) {
	base, err := sim.New(ctx, objects, options)
	if err != nil {
		return nil, err
	}
	b := &baseline{sim: base, placed: map[types.UID]*v1.Pod{}, failed: map[string]bool{}}
	for _, pod := range read.placed() {
		b.placed[pod.UID] = pod
	}
	base.Mark()
	down := base.Fail(func(node *v1.Node) bool { return !nodes.Ready(node) })
	for _, node := range down.Nodes {
		b.failed[node.Name] = true
	}
	if err := base.Run(ctx); err != nil {
		base.Close()
		return nil, err
	}
	b.replaced = base.Replaced()
	b.moved, b.inPlaceOfMoved = slices.Clone(down.Staying), slices.Clone(down.Staying)
	for _, c := range sim.Changes[*v1.Pod](base) {
		if c.Before != nil && b.placed[c.Before.UID] != nil {
			b.moved = append(b.moved, c.Before)
		}
		if c.After != nil && live(c.After) && b.placed[firstOf(c.After.UID, b.replaced)] != nil {
			b.inPlaceOfMoved = append(b.inPlaceOfMoved, c.After)
		}
	}
	b.usage = usageOf(sim.List[*v1.Node](base), sim.List[*v1.Pod](base))
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

// replayRound replays losses, and records for the certificates what they come to.
type replayRound struct {
	start        *baseline
	options      *Options
	certificates []*certificate
	// kept has for each zone the copy after its loss while its Node objects stay, in the worst order; none of a zone
	// whose loss breaks all certificates.
	kept map[string]*replayer
}

// replayAll replays each loss that a certificate asks for, and returns the copies that can follow the cluster.
func replayAll(
	ctx context.Context, objects []client.Object, certificates []*certificate, options *Options,
) (map[string]*replayer, error) {
	read := newReading(objects)
	for _, c := range certificates {
		c.recordBaseline(read)
	}
	start, err := newBaseline(ctx, objects, read, options.Sim)
	if err != nil {
		return nil, err
	}
	defer start.sim.Close()
	p := &replayRound{start: start, options: options, certificates: certificates, kept: map[string]*replayer{}}
	err = p.replayZones(ctx)
	if err == nil {
		err = p.replayNodes(ctx)
	}
	return p.kept, err
}

// newReplayer returns where losses are replayed in a form and in the order of that number; the first is the worst one.
func (p *replayRound) newReplayer(f form, number int) *replayer {
	seed := p.options.Sim.Seed + int64(int(forms)*number+int(f))
	var rank func(pod *v1.Pod) []int64
	if number == 0 {
		rank = worstRank(latecomers(sim.List[*v1alpha1.ZoneSpreadPolicy](p.start.sim)), func(pod *v1.Pod) bool {
			return slices.ContainsFunc(p.certificates, func(c *certificate) bool { return c.invalid == nil && c.protects(pod) })
		})
	}
	return &replayer{
		start: p.start, form: f, change: func(o *sim.Options) { o.Seed, o.Rank = seed, rank },
		replaced: p.start.replaced, failed: p.start.failed,
	}
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
	displaced := map[string]int{} // by zone
	for node, pods := range p.displacedByNode() {
		displaced[node.Labels[v1.LabelTopologyZone]] += pods
	}
	for _, zone := range slices.Sorted(maps.Keys(wanted)) {
		for i := range p.options.replaysOf(displaced[zone]) {
			for f := range forms {
				if err := p.replayZone(ctx, loss{zone: zone}, f, i, wanted[zone]); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// replayZone replays the loss of a zone in a form and an order, if a certificate is still to be decided. An error is
// that of ctx.
func (p *replayRound) replayZone(ctx context.Context, l loss, f form, order int, wanted []*certificate) error {
	open := slices.DeleteFunc(slices.Clone(wanted), func(c *certificate) bool { return c.isBroken(l, f) })
	if len(open) == 0 {
		return nil
	}
	s := p.newReplayer(f, order)
	r, err := s.replay(ctx, l)
	if ctx.Err() != nil {
		s.close()
		return ctx.Err()
	}
	holds := false
	for _, c := range open {
		c.recordOutcome(l, f, r, err)
		holds = holds || !c.isBroken(l, f)
	}
	if !holds || f != nodesStay || order > 0 {
		s.close()
		return nil
	}
	s.start = nil // as large as what is kept, and no longer needed
	p.kept[l.zone] = s
	return nil
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
	for node, pods := range p.displacedByNode() {
		names = append(names, node.Name)
		all += pods
	}
	slices.Sort(names)
	for i := range p.options.replaysOf(all) {
		for f := range forms {
			s := p.newReplayer(f, i)
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

// displacedByNode returns how many pods the loss of each node of the baseline would displace. Nodes without any are left
// out.
func (p *replayRound) displacedByNode() map[*v1.Node]int {
	out := map[*v1.Node]int{}
	for _, pod := range sim.List[*v1.Pod](p.start.sim) {
		if node, exists := sim.Get[*v1.Node](p.start.sim, "", pod.Spec.NodeName); exists && live(pod) && !sim.NodeBound(pod) {
			out[node]++
		}
	}
	return out
}
