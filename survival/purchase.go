package survival

import (
	"context"
	"errors"
	"iter"
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
// since it takes many times as long as the certificate. It must be closed. It is not safe for concurrent use.
type PurchaseSearch struct {
	certificate *certificate
	options     *Options
	base        *sim.Sim
	losses      []*loss
	// displaced is how many pods each loss displaces, and waiting how many wait before.
	displaced               []int
	displacedByAll, waiting int
	// protected is how many protected pods are on each node, and waited how many wait after the worst loss.
	protected map[string]int
	waited    int

	// resume goes on until the next pause, and reports whether there was one. stop has pause return errClosed.
	resume func() (struct{}, bool)
	stop   func()
	pause  func() error
	found  *v1alpha1.SurvivalPurchase
}

var errClosed = errors.New("the search is closed")

// NewPurchaseSearch begins a search for the losses of a status of Certify. It returns nil if no pod waits, or if the
// losses displace too many pods for a search. An error is that of ctx, which has to last as long as the search.
func NewPurchaseSearch(
	ctx context.Context, objects []client.Object, asked *v1alpha1.ZoneSurvival, options Options, status *v1alpha1.ZoneSurvivalStatus,
) (*PurchaseSearch, error) {
	search := &PurchaseSearch{certificate: newCertificate(asked), options: &options}
	for i := range status.Losses {
		l := &status.Losses[i]
		search.waited = max(search.waited, int(l.Waiting))
		search.losses = append(search.losses, &loss{zone: l.Zone, nodes: l.NodeNames})
	}
	if search.waited == 0 || search.certificate.invalid != nil {
		return nil, nil //nolint:nilerr // the certificate says what is invalid
	}
	base, err := sim.New(ctx, objects, options.Sim)
	if err != nil {
		return nil, context.Cause(ctx) // the certificate says what goes wrong in a copy
	}
	search.base = base
	search.count()
	if search.waiting+search.displacedByAll > maxSearched {
		base.Close()
		return nil, nil
	}
	search.resume, search.stop = iter.Pull(func(yield func(struct{}) bool) {
		search.pause = func() error {
			if !yield(struct{}{}) {
				return errClosed
			}
			return nil
		}
		found, err := search.run(ctx)
		if err == nil { // else the certificate says what goes wrong in a replay
			search.found = found
		}
	})
	return search, nil
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
	p.base.Close()
}

// trial is a loss in one of the orders of its replays.
type trial struct {
	loss  *loss
	order int
}

// count counts the pods that each trial places.
func (p *PurchaseSearch) count() {
	p.displaced, p.protected = make([]int, len(p.losses)), map[string]int{}
	for _, pod := range sim.List[*v1.Pod](p.base) {
		if !live(pod) || sim.NodeBound(pod) {
			continue
		}
		if pod.Spec.NodeName == "" {
			p.waiting++
			continue
		}
		if p.certificate.protects(pod) {
			p.protected[pod.Spec.NodeName]++
		}
		node, exists := sim.Get[*v1.Node](p.base, "", pod.Spec.NodeName)
		for i, l := range p.losses {
			if exists && l.includes(node) {
				p.displaced[i]++
				p.displacedByAll++
			}
		}
	}
}

// run finds what is enough for the trials that have failed so far, and tries it in all, until none fails.
func (p *PurchaseSearch) run(ctx context.Context) (*v1alpha1.SurvivalPurchase, error) {
	most := slices.Max(p.displaced) + p.waiting // each pod needs one node at most
	var all, failed []trial
	for i, l := range p.losses {
		for order := range p.options.replaysOf(p.displaced[i], mostReplays) {
			all = append(all, trial{l, order})
		}
	}
	models := slices.DeleteFunc(buy.Models(sim.List[*v1.Node](p.base), p.protected), func(m buy.Model) bool {
		return !slices.ContainsFunc(p.losses, func(l *loss) bool { return l.zone == "" || l.zone != m.Zone }) // what is bought there is lost as well
	})
	bought := map[string]int{}
	for {
		failing, err := p.firstFailing(ctx, all, bought)
		if err != nil {
			return nil, err
		}
		if failing < 0 {
			return purchased(models, bought), nil
		}
		failed = append(failed, all[failing])
		all = slices.Delete(all, failing, failing+1)
		bought, err = buy.Search(models, p.waited, most, func(bought map[string]int) (bool, error) {
			failing, err := p.firstFailing(ctx, failed, bought)
			if failing > 0 { // what is not enough here is likely not enough with other numbers
				failed[0], failed[failing] = failed[failing], failed[0]
			}
			return failing < 0, err
		})
		if err != nil {
			return nil, err
		}
		if bought == nil {
			return &v1alpha1.SurvivalPurchase{}, nil
		}
	}
}

// firstFailing returns the place of the first trial after which a protected pod waits although there are such further
// nodes; -1 if there is none.
func (p *PurchaseSearch) firstFailing(ctx context.Context, trials []trial, bought map[string]int) (int, error) {
	for i, t := range trials {
		if err := p.pause(); err != nil {
			return i, err
		}
		waits, err := p.waits(ctx, t, bought)
		if err != nil || waits {
			return i, err
		}
	}
	return -1, nil
}

// waits reports whether a protected pod waits after a trial.
func (p *PurchaseSearch) waits(ctx context.Context, t trial, bought map[string]int) (bool, error) {
	base, err := p.base.Fork(ctx, nil)
	if err != nil {
		return false, err
	}
	defer base.Close()
	for like, n := range bought {
		if _, err := base.AddNodes(n, like); err != nil {
			return false, err
		}
	}
	if err := base.Run(ctx); err != nil {
		return false, err
	}
	round := replayRound{base: base, before: usageOf(nil, nil), options: p.options, certificates: []*certificate{p.certificate}}
	s := round.copyForOrder(t.order)
	defer s.close()
	r, err := s.replay(ctx, t.loss)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(r.moves, func(m move) bool {
		return p.certificate.protects(m.before) && (m.now == nil || m.now.Spec.NodeName == "")
	}), nil
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
