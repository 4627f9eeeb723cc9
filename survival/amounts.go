package survival

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/internal/amount"
	"zonewise.dev/plugins/reservecache/ledger"
	"zonewise.dev/sim"
)

const (
	// maxPasses is how many times each loss is replayed in each order, at most, until nothing is lacking any more.
	maxPasses = 8
	// thoroughness is how many times as many orders the planner tries of each loss in a pass as a certificate tries in
	// all, which are others. Of a loss that displaces few pods a certificate tries more, up to as many.
	thoroughness = 4
	// worthwhile is by how much other amounts must be smaller to replace those that are held, of which none then would
	// stay.
	worthwhile = 0.9
)

// amounts are what is held on nodes, by their names.
type amounts map[string]ledger.Resources

// planner finds out how much to hold on which nodes, so that displaced pods find room there after each loss although
// others take all other room.
type planner struct {
	options  *Options
	asked    *v1alpha1.ZoneSurvival
	protects func(pod *v1.Pod) bool
	// own is what the protected pods ask for, by node.
	own amounts
	// pods are those on nodes, objects all else that is the same in all copies. There are no reservations in the
	// copies: what the others hold is taken, and what is to be held is all that is left free.
	pods    []*v1.Pod
	objects []client.Object
	sites   map[string]*site
	nodes   []*site                     // in the order in which they were given
	losses  []*loss                     // the one that displaces most first
	demand  map[string]ledger.Resources // what the displaced pods of each node ask for
	// least is the CPU and memory that has to be held at least, if all losses share it, and shares how much of it may
	// be in each zone.
	least  ledger.Resources
	shares map[string]ledger.Resources
	// total is what all nodes have, and limit how much of its CPU and memory may be held; nil for all.
	total ledger.Resources
	limit *ledger.Resources
	// policies take no zone for full until all free room is open.
	policies []*v1alpha1.ZoneSpreadPolicy
	// late are the pods that come last in some orders.
	late selection
	// broken means that a pod waits in a replay of the certificate. Its orders come first then.
	broken bool
	// orders is how many there are of each loss in a pass.
	orders int
}

// plan is what the planner finds out.
type plan struct {
	held amounts
	// missing are pods for which there is no room, by zone and request; capped means that the limit keeps some of it
	// from being held.
	missing missingPods
	capped  bool
	// tight is what of held the replays have used in the end.
	tight amounts
}

// missingPods are pods for which there is no room, those together that ask for the same in the same zone.
type missingPods map[shape][]*v1.Pod

// shape is a zone, and what a pod asks for, in words.
type shape struct{ zone, requests string }

func (l missingPods) addPod(zone string, pod *v1.Pod) {
	key := shape{zone, requestsText(pod)}
	l[key] = append(l[key], pod)
}

func (l missingPods) podCount() (pods int64) {
	for _, lack := range l {
		pods += int64(len(lack))
	}
	return pods
}

// newPlanner reads a cluster. taken is what other reservations hold by node, and belongs which protected pods may use
// what is held. held is that now, and said what the certificate says of losses.
func newPlanner(
	objects []client.Object, c *certificate, taken amounts, belongs func(*v1.Pod) bool, options *Options,
	held amounts, said []v1alpha1.SurvivalLoss,
) *planner {
	p := &planner{
		options: options, asked: c.asked, sites: map[string]*site{}, demand: map[string]ledger.Resources{},
		protects: func(pod *v1.Pod) bool { return c.protects(pod) && belongs(pod) },
	}
	zones := map[string]bool{}
	for _, obj := range objects {
		switch o := obj.(type) {
		case *v1.Node:
			s := &site{
				node: o, zone: o.Labels[v1.LabelTopologyZone], allocatable: ledger.ResourcesOf(o.Status.Allocatable),
			}
			p.total.Add(&s.allocatable, 1)
			others := taken[o.Name]
			s.allocatable.Add(&others, -1)
			p.sites[o.Name], p.nodes = s, append(p.nodes, s)
			if s.zone != "" {
				zones[s.zone] = true
			}
		case *v1.Pod:
			if o.Spec.NodeName != "" && !ended(o) {
				p.pods = append(p.pods, o)
			}
		case *v1alpha1.ZoneReservation:
		case *v1alpha1.ZoneSpreadPolicy:
			p.policies = append(p.policies, o)
		default:
			p.objects = append(p.objects, obj)
		}
	}
	p.late = latecomers(p.policies)
	for i, pod := range p.pods {
		s, request := p.sites[pod.Spec.NodeName], footprintOf(pod)
		if s == nil {
			continue
		}
		s.requested.Add(&request, 1)
		switch {
		case p.protects(pod):
			if live(pod) && metav1.GetControllerOf(pod) != nil {
				demand := p.demand[s.node.Name]
				demand.Add(&request, 1)
				p.demand[s.node.Name] = demand
			}
			// What is held counts on no eviction.
			unforced := *pod
			unforced.Spec.PreemptionPolicy = ptr.To(v1.PreemptNever)
			p.pods[i] = &unforced
		case !sim.NodeBound(pod):
			s.otherPods.Add(&request, 1)
		}
	}
	c.selectZones(zones)
	p.losses = p.displacingLosses(c.candidates(p, held, said))
	most := int64(0)
	for _, l := range p.losses {
		demand := p.demandOf(l)
		most = max(most, demand.Pods)
	}
	p.orders = thoroughness * options.replaysOf(int(most), DefaultReplays)
	p.computeShares(zones)
	if fraction := c.asked.Spec.MaxHeldFraction; fraction != nil {
		f := fraction.AsApproximateFloat64()
		p.limit = &ledger.Resources{
			MilliCPU: int64(f * float64(p.total.MilliCPU)), Memory: int64(f * float64(p.total.Memory)),
		}
	}
	return p
}

// demandOf is what the pods ask for that a loss displaces.
func (p *planner) demandOf(l *loss) ledger.Resources {
	var sum ledger.Resources
	for name, demand := range p.demand {
		if l.includes(p.sites[name].node) {
			sum.Add(&demand, 1)
		}
	}
	return sum
}

// displacingLosses leaves out losses that displace nothing, and sorts the others: the one that displaces most is the
// first.
func (p *planner) displacingLosses(losses []*loss) []*loss {
	size := map[*loss]float64{}
	losses = slices.DeleteFunc(losses, func(l *loss) bool {
		demand := p.demandOf(l)
		size[l] = p.sizeOf(demand)
		return demand.Pods == 0
	})
	slices.SortFunc(losses, func(a, b *loss) int {
		return cmp.Or(cmp.Compare(size[b], size[a]), strings.Compare(a.key(), b.key()))
	})
	return losses
}

// computeShares works out how little can be held. What is held outside of a lost zone must be no less than what the
// zone displaces: with T in all, a zone has at most T less its own demand. So T is no less than any demand, nor than
// all of them divided by the number of the other zones, and no more than that is needed. For nodes T is divided evenly.
func (p *planner) computeShares(zones map[string]bool) {
	var all ledger.Resources
	byZone := map[string]ledger.Resources{}
	nodes := false
	for _, l := range p.losses {
		demand := p.demandOf(l)
		p.least.SetMax(&demand)
		nodes = l.nodes != nil
		if !nodes {
			byZone[l.zone] = demand
			all.Add(&demand, 1)
		}
	}
	if others := int64(len(zones) - 1); others > 0 {
		p.least.MilliCPU = max(p.least.MilliCPU, all.MilliCPU/others)
		p.least.Memory = max(p.least.Memory, all.Memory/others)
	}
	p.least = ledger.Resources{MilliCPU: p.least.MilliCPU, Memory: p.least.Memory}
	p.shares = map[string]ledger.Resources{}
	for zone := range zones {
		if n := int64(len(zones)); nodes {
			p.shares[zone] = ledger.Resources{
				MilliCPU: (p.least.MilliCPU + n - 1) / n, Memory: (p.least.Memory + n - 1) / n,
			}
			continue
		}
		demand := byZone[zone]
		p.shares[zone] = p.least.Minus(&demand)
	}
}

// sizeOf measures an amount: the fraction of the cluster's CPU and that of its memory, added.
func (p *planner) sizeOf(r ledger.Resources) float64 {
	return float64(r.MilliCPU)/float64(max(1, p.total.MilliCPU)) + float64(r.Memory)/float64(max(1, p.total.Memory))
}

func (a amounts) total() ledger.Resources {
	var sum ledger.Resources
	for _, r := range a {
		sum.Add(&r, 1)
	}
	return sum
}

// raiseTo makes the amount of a node no less than r.
func (a amounts) raiseTo(node string, r *ledger.Resources) {
	held := a[node]
	held = held.Clone()
	held.SetMax(r)
	a[node] = held
}

// add adds r to the amount of a node so many times.
func (a amounts) add(node string, r *ledger.Resources, times int64) {
	held := a[node]
	held = held.Clone()
	held.Add(r, times)
	a[node] = held
}

// raisedBy returns amounts that are no less than these, nor than what pods use that have found room.
func (a amounts) raisedBy(placed []placement) amounts {
	out, used := maps.Clone(a), amounts{}
	for _, found := range placed {
		request := footprintOf(found.pod)
		used.add(found.node, &request, 1)
	}
	for name, room := range used {
		out.raiseTo(name, &room)
	}
	return out
}

// computePlan begins with the amounts that there are, so that they stay, and with none if that comes out much smaller.
func (p *planner) computePlan(ctx context.Context, held amounts) (*plan, error) {
	first, err := p.growAmounts(ctx, p.replayLoss, p.holdable(held))
	if err != nil || len(held) == 0 || p.sizeOf(first.tight.total()) > worthwhile*p.sizeOf(first.held.total()) {
		return first, err
	}
	fresh, err := p.growAmounts(ctx, p.replayLoss, amounts{})
	if err != nil || p.sizeOf(fresh.held.total()) > worthwhile*p.sizeOf(first.held.total()) ||
		fresh.missing.podCount() > first.missing.podCount() {
		return first, err
	}
	return fresh, nil
}

// replayResult is what one replay comes to.
type replayResult struct {
	used, asks amounts // asks are what is used of nodes on which others have the room now
	missing    missingPods
	capped     bool
}

// worstOf returns the first replay in which most pods lack room.
func worstOf(replays []replayResult) *replayResult {
	worst := &replays[0]
	for i := range replays {
		if replays[i].missing.podCount() > worst.missing.podCount() {
			worst = &replays[i]
		}
	}
	return worst
}

// holdable is the part of amounts for which there is room now, on nodes that may take pods.
func (p *planner) holdable(held amounts) amounts {
	out := amounts{}
	for name, r := range held {
		if s := p.sites[name]; s != nil && usable(s.node) {
			room := s.freeRoom()
			r = r.Clone()
			r.SetMin(&room)
			r = r.Positive()
			if !r.IsZero() {
				out[name] = r
			}
		}
	}
	return out
}

// replayFunc plays a loss, as replay does.
type replayFunc func(ctx context.Context, l *loss, order int, seed int64, held amounts) ([]placement, error)

// growAmounts raises amounts until every displaced pod finds room in them, whichever the loss and the order, or nowhere
// at all.
func (p *planner) growAmounts(ctx context.Context, replay replayFunc, held amounts) (*plan, error) {
	out := &plan{held: held, missing: missingPods{}}
	replays := len(p.losses) * p.orders
	// Each pass replays the losses in other orders, until nothing was lacking in as many replays in a row as a pass
	// has. Then come the first pass's orders again: with these the next plan begins, and it should find nothing
	// lacking.
	last, enough, settling := make([]replayResult, replays), 0, false
	for n := range maxPasses * replays {
		if enough == replays {
			if settling || n == replays {
				break
			}
			enough, settling = 0, true
		}
		at, pass := n%replays, n/replays
		if settling {
			pass = 0
		}
		order := at % p.orders
		placements, err := replay(ctx, p.losses[at/p.orders], order, p.seedOf(pass, order), held)
		if err != nil {
			return nil, err
		}
		f := replayResult{used: amounts{}, asks: amounts{}, missing: missingPods{}}
		grew := false
		for _, l := range placements {
			request := footprintOf(l.pod)
			if l.node == "" {
				f.missing.addPod("", l.pod)
				continue
			}
			used := f.used[l.node]
			used = used.Clone()
			used.Add(&request, 1)
			if p.exceedsLimit(held, l.node, &used) {
				f.capped = true
				f.missing.addPod(p.sites[l.node].zone, l.pod)
				continue
			}
			f.used[l.node] = used
			if l.foundAt == openAll {
				f.missing.addPod(p.sites[l.node].zone, l.pod)
				f.asks.raiseTo(l.node, &used)
				continue
			}
			if room := held[l.node]; used.Exceeds(&room) != "" {
				grew = true
				held.raiseTo(l.node, &used)
			}
		}
		last[at] = f
		if grew {
			enough = 0
		}
		enough++
	}
	out.tight = amounts{}
	for at := range last {
		f := &last[at]
		out.capped = out.capped || f.capped
		for node, used := range f.used {
			out.tight.raiseTo(node, &used)
		}
		// The replay of a loss in which most is missing says where freed room is to be collected: others would ask for
		// it elsewhere.
		orders := last[at/p.orders*p.orders:][:p.orders]
		if f != worstOf(orders) {
			continue
		}
		for m, pods := range f.missing {
			if len(pods) > len(out.missing[m]) {
				out.missing[m] = pods
			}
		}
		for _, node := range slices.Sorted(maps.Keys(f.asks)) {
			if ask := f.asks[node]; p.exceedsLimit(held, node, &ask) {
				out.capped = true
			} else {
				held.raiseTo(node, &ask)
			}
		}
	}
	return out, nil
}

// seedOf is that of an order of a pass.
func (p *planner) seedOf(pass, order int) int64 {
	if p.broken {
		if pass--; pass < 0 {
			return certificateSeeds + int64(order)
		}
	}
	return int64(pass*p.orders + order)
}

// exceedsLimit reports whether more would be held than may be, if a node held as much.
func (p *planner) exceedsLimit(held amounts, node string, r *ledger.Resources) bool {
	if p.limit == nil {
		return false
	}
	has := held[node]
	if r.Exceeds(&has) == "" {
		return false
	}
	more := r.Minus(&has)
	more = more.Positive()
	sum := held.total()
	return more.MilliCPU > 0 && sum.MilliCPU+more.MilliCPU > p.limit.MilliCPU ||
		more.Memory > 0 && sum.Memory+more.Memory > p.limit.Memory
}

// footprintOf is what a pod takes of a node.
func footprintOf(pod *v1.Pod) ledger.Resources {
	r := ledger.ResourcesOf(requestsOf(pod))
	r.Pods = 1
	return r
}

// requestsText puts into words what a pod asks for.
func requestsText(pod *v1.Pod) string {
	r := footprintOf(pod)
	var requests []string
	for name := range r.Named() {
		if name != v1.ResourcePods {
			requests = append(requests, string(name)+"="+amount.Quantity(name, r.Amount(name)).String())
		}
	}
	slices.Sort(requests)
	return strings.Join(requests, ",")
}
