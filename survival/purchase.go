package survival

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/buy"
	"zonewise.dev/sim"
)

// maxSearched is how many pods may wait before all losses and be displaced by them, together, for a purchase to be
// searched: each number of nodes that is tried places them again.
const maxSearched = 3000

// PurchaseSearch searches the fewest nodes with which no protected pod would wait after any loss. It is done in steps,
// since it takes several times as long as the certificate. It must be closed. It is not safe for concurrent use.
type PurchaseSearch struct {
	certificate *certificate
	options     *Options
	objects     []client.Object
	losses      []*loss // those after which most protected pods wait first
	broken      int     // after how many of them some wait
	// displaced is how many pods each loss displaces, and waiting how many wait before.
	displaced               []int
	displacedByAll, waiting int
	nodes                   []*v1.Node
	// daemons are the pods of each node that run on nodes like it.
	daemons map[string][]*v1.Pod
	// protected is how many protected pods are on each node.
	protected map[string]int
	// base is the cluster with the nodes of with, at rest; nil at first.
	base *sim.Sim
	with map[string]int
	// failures are what has been seen to wait, and tooFew purchases that were not enough.
	failures []*failure
	tooFew   []map[string]int

	// resume goes on until the next pause, and reports whether there was one. stop has pause return errClosed.
	resume func() (struct{}, bool)
	stop   func()
	pause  func() error
	found  *v1alpha1.SurvivalPurchase
}

var errClosed = errors.New("the search is closed")

// NewPurchaseSearch prepares a search for the losses of a status of Certify; it copies nothing yet. It returns nil if no pod waits, or if the
// losses displace too many pods for a search. ctx has to last as long as the search.
func NewPurchaseSearch(
	ctx context.Context, objects []client.Object, asked *v1alpha1.ZoneSurvival, options Options, status *v1alpha1.ZoneSurvivalStatus,
) *PurchaseSearch {
	p := &PurchaseSearch{certificate: newCertificate(asked), options: &options, objects: objects}
	if p.certificate.invalid != nil {
		return nil
	}
	losses := slices.Clone(status.Losses)
	slices.SortStableFunc(losses, func(a, b v1alpha1.SurvivalLoss) int { return cmp.Compare(b.Waiting, a.Waiting) })
	for i := range losses {
		if losses[i].Waiting > 0 {
			p.broken++
		}
		p.losses = append(p.losses, &loss{zone: losses[i].Zone, nodes: losses[i].NodeNames})
	}
	if p.broken == 0 {
		return nil
	}
	p.count()
	if p.waiting+p.displacedByAll > maxSearched {
		return nil
	}
	p.resume, p.stop = iter.Pull(func(yield func(struct{}) bool) {
		p.pause = func() error {
			if !yield(struct{}{}) {
				return errClosed
			}
			return nil
		}
		found, err := p.run(ctx)
		if err == nil { // else the certificate says what goes wrong in a replay
			p.found = found
		}
	})
	return p
}

// Step replays one loss, and reports whether there is more to do.
func (p *PurchaseSearch) Step() bool {
	_, more := p.resume()
	return more
}

// Found returns the nodes, once Step has returned false; nil if a replay has failed.
func (p *PurchaseSearch) Found() *v1alpha1.SurvivalPurchase { return p.found }

// Close ends the search.
func (p *PurchaseSearch) Close() {
	p.stop()
	p.closeBase()
}

func (p *PurchaseSearch) closeBase() {
	if p.base != nil {
		p.base.Close()
		p.base = nil
	}
}

// trial is a loss in one of the orders of its replays.
type trial struct {
	loss  *loss
	order int
}

// failure is a trial after which protected pods wait although so much is bought. waiting are all pods that wait then, and protected those that are protected.
type failure struct {
	trial
	bought             map[string]int
	waiting, protected []*v1.Pod
	// hopeless: no node helps, since nothing replaces a protected pod.
	hopeless bool
}

// count counts the pods that each trial places.
func (p *PurchaseSearch) count() {
	nodes, pods := map[string]*v1.Node{}, []*v1.Pod(nil)
	for _, obj := range p.objects {
		switch o := obj.(type) {
		case *v1.Node:
			nodes[o.Name] = o
			p.nodes = append(p.nodes, o)
		case *v1.Pod:
			pods = append(pods, o)
		}
	}
	p.displaced, p.protected, p.daemons = make([]int, len(p.losses)), map[string]int{}, map[string][]*v1.Pod{}
	for _, pod := range pods {
		if !live(pod) {
			continue
		}
		if sim.NodeBound(pod) {
			p.daemons[pod.Spec.NodeName] = append(p.daemons[pod.Spec.NodeName], pod)
			continue
		}
		if pod.Spec.NodeName == "" {
			p.waiting++
			continue
		}
		if p.certificate.protects(pod) {
			p.protected[pod.Spec.NodeName]++
		}
		node := nodes[pod.Spec.NodeName]
		for i, l := range p.losses {
			if node != nil && l.includes(node) {
				p.displaced[i]++
				p.displacedByAll++
			}
		}
	}
}

// run finds what is enough for the trials that have failed so far, and tries it in all, until none fails.
func (p *PurchaseSearch) run(ctx context.Context) (*v1alpha1.SurvivalPurchase, error) {
	var all []trial
	for i, l := range p.losses {
		known := false
		for order := range p.options.replaysOf(p.displaced[i], mostReplays) {
			t := trial{l, order}
			if i < p.broken && !known {
				f, err := p.try(ctx, t, nil)
				if err != nil {
					return nil, err
				}
				if f != nil {
					p.failures, known = append(p.failures, f), true
					continue
				}
			}
			all = append(all, t)
		}
	}
	models := slices.DeleteFunc(buy.Models(p.nodes, p.protected), func(m buy.Model) bool {
		return !slices.ContainsFunc(p.losses, func(l *loss) bool { return !l.takesZone(m.Zone) }) // what is bought there is lost as well
	})
	most := slices.Max(p.displaced) + p.waiting // each pod needs one node at most
	bought := map[string]int{}
	for {
		if slices.ContainsFunc(p.failures, func(f *failure) bool { return f.hopeless }) {
			return &v1alpha1.SurvivalPurchase{}, nil
		}
		if len(p.failures) > 0 {
			guesses, each := p.guesses(models)
			var err error
			bought, err = buy.Search(models, guesses, each, most, func(bought map[string]int) (bool, error) { return p.enough(ctx, bought) })
			if err != nil {
				return nil, err
			}
			if bought == nil {
				return &v1alpha1.SurvivalPurchase{}, nil
			}
		}
		failed, err := p.firstFailing(ctx, all, bought)
		if err != nil {
			return nil, err
		}
		if failed == nil {
			return purchased(models, bought), nil
		}
		p.failures = append(p.failures, failed)
		all = slices.DeleteFunc(all, func(t trial) bool { return t == failed.trial })
	}
}

// enough reports whether no protected pod waits after the trials that have failed, with what is bought. With fewer nodes than were too few before it is
// not tried: the trials that were not enough then are among them still.
func (p *PurchaseSearch) enough(ctx context.Context, bought map[string]int) (bool, error) {
	if slices.ContainsFunc(p.tooFew, func(few map[string]int) bool { return isWithin(bought, few) }) {
		return false, nil
	}
	for i, f := range p.failures {
		again, err := p.try(ctx, f.trial, bought)
		if err != nil {
			return false, err
		}
		if again != nil {
			p.failures[0], p.failures[i] = p.failures[i], p.failures[0] // what is not enough here is likely not enough with other numbers
			p.tooFew = append(p.tooFew, bought)
			return false, nil
		}
	}
	return true, nil
}

// isWithin reports whether a purchase has no more of anything than another one.
func isWithin(bought, other map[string]int) bool {
	for like, n := range bought {
		if n > other[like] {
			return false
		}
	}
	return true
}

// firstFailing returns what the first of the trials comes to after which a protected pod waits although there are such further
// nodes; nil if there is none.
func (p *PurchaseSearch) firstFailing(ctx context.Context, trials []trial, bought map[string]int) (*failure, error) {
	for _, t := range trials {
		f, err := p.try(ctx, t, bought)
		if f != nil || err != nil {
			return f, err
		}
	}
	return nil, nil //nolint:nilnil // none fails
}

// try pauses, and then replays a trial with what is bought. It returns nil if no protected pod waits after it.
func (p *PurchaseSearch) try(ctx context.Context, t trial, bought map[string]int) (*failure, error) {
	if err := p.pause(); err != nil {
		return nil, err
	}
	if err := p.copyWith(ctx, bought); err != nil {
		return nil, err
	}
	round := replayRound{base: p.base, before: usageOf(nil, nil), options: p.options, certificates: []*certificate{p.certificate}}
	s := round.copyForOrder(t.order)
	defer s.close()
	r, err := s.replay(ctx, t.loss)
	if err != nil {
		return nil, err
	}
	f := &failure{trial: t, bought: bought}
	fails := false
	for _, m := range r.moves {
		switch {
		case !p.certificate.protects(m.before):
		case m.now == nil:
			fails = true
			node, exists := sim.Get[*v1.Node](p.base, "", m.before.Spec.NodeName)
			f.hopeless = f.hopeless || exists && t.loss.includes(node)
		case m.now.Spec.NodeName == "":
			fails = true
			f.protected = append(f.protected, m.now)
		}
	}
	if !fails {
		return nil, nil //nolint:nilnil // it does not fail
	}
	for _, pod := range sim.List[*v1.Pod](s.copy) {
		if live(pod) && pod.Spec.NodeName == "" {
			f.waiting = append(f.waiting, pod)
		}
	}
	return f, nil
}

// copyWith makes base the cluster with such further nodes.
func (p *PurchaseSearch) copyWith(ctx context.Context, bought map[string]int) error {
	if p.base != nil && maps.Equal(p.with, bought) {
		return nil
	}
	p.closeBase()
	base, err := sim.New(ctx, p.objects, p.options.Sim)
	if err != nil {
		return err
	}
	p.base, p.with = base, maps.Clone(bought)
	for _, like := range slices.Sorted(maps.Keys(bought)) {
		if _, err := base.AddNodes(bought[like], like); err != nil {
			return err
		}
	}
	return base.Run(ctx)
}

// purchased is a purchase that is enough, in the order of the models.
func purchased(models []buy.Model, bought map[string]int) *v1alpha1.SurvivalPurchase {
	out := &v1alpha1.SurvivalPurchase{Enough: true}
	for _, m := range models {
		if n := bought[m.Node]; n > 0 {
			out.Nodes = append(out.Nodes, v1alpha1.SurvivalPurchasedNodes{Nodes: int64(n), Like: m.Node, Zone: m.Zone})
		}
	}
	return out
}
