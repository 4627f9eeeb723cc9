package survival

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cmd/controller/parts"
	"zonewise.dev/survival"
)

const (
	// purchaseShare is what part of the controller's budget of CPU goes into searching what would have to be bought.
	purchaseShare = 0.5
	// maxSearches is how many searches are under way at a time. Each has a copy of the cluster; with two of them a
	// long one does not keep all others waiting.
	maxSearches = 2
)

// purchases searches what would have to be bought for ZoneSurvivals whose answer is False, a step of each search in
// turn.
type purchases struct {
	budget parts.Meter
	// newest is the last full round.
	newest *lacking
	// searches are under way. The first is the next to have a step. None is given up for a newer round: on a busy
	// cluster none would end.
	searches []*search
	// searched is of which cluster each spec has been searched last, of those that newest asks for.
	searched map[askedSpec]cluster
	// found is what the next look at the cluster writes.
	found map[askedSpec]*v1alpha1.SurvivalPurchase
}

// lacking is a full round and those of its ZoneSurvivals that lack something.
type lacking struct {
	*round
	lacks []lack
}

// lack is a ZoneSurvival and its status, which is False.
type lack struct {
	asked  *v1alpha1.ZoneSurvival
	status *v1alpha1.ZoneSurvivalStatus
}

// askedSpec is a ZoneSurvival as it was asked.
type askedSpec struct {
	uid        types.UID
	generation int64
}

func (l *lack) spec() askedSpec { return askedSpec{l.asked.UID, l.asked.Generation} }

// displaced is how many protected pods all losses displace: a search takes longer the more they are.
func (l *lack) displaced() int64 {
	sum := int64(0)
	for i := range l.status.Losses {
		sum += l.status.Losses[i].Displaced
	}
	return sum
}

// cluster is one that has been searched.
type cluster struct {
	readAt      time.Time
	fingerprint string
}

// search is one that is under way.
type search struct {
	*survival.PurchaseSearch
	lack
	steps int
	took  time.Duration // CPU
}

// add takes a full round, whose statuses are in the order of those that it asks.
func (p *purchases) add(r *round, statuses []v1alpha1.ZoneSurvivalStatus) {
	p.newest = &lacking{round: r}
	lacks := map[askedSpec]bool{}
	for i, s := range r.asked {
		if meta.IsStatusConditionFalse(statuses[i].Conditions, v1alpha1.ConditionSurvives) {
			l := lack{s.DeepCopy(), statuses[i].DeepCopy()}
			p.newest.lacks, lacks[l.spec()] = append(p.newest.lacks, l), true
		}
	}
	maps.DeleteFunc(p.searched, func(spec askedSpec, _ cluster) bool { return !lacks[spec] })
	p.searches = slices.DeleteFunc(p.searches, func(s *search) bool {
		if !lacks[s.spec()] { // nobody asks any more
			s.Close()
		}
		return !lacks[s.spec()]
	})
}

// step does a step of the next search, if the budget allows it. It returns after how long it wants to do another one,
// and whether it has found something new. An error is that of ctx.
func (p *purchases) step(ctx context.Context) (next time.Duration, found bool, err error) {
	found = p.begin(ctx)
	if len(p.searches) == 0 {
		return math.MaxInt64, found, nil
	}
	if wait := p.budget.TryBegin(time.Now()); wait > 0 {
		return wait, found, nil
	}
	defer p.budget.End()
	s := p.searches[0]
	more := s.Step()
	if ctx.Err() != nil {
		return 0, false, context.Cause(ctx)
	}
	s.steps++
	s.took += p.budget.Used()
	p.searches = p.searches[1:]
	if more {
		p.searches = append(p.searches, s)
		return 0, found, nil
	}
	s.Close()
	klog.FromContext(ctx).V(2).Info(
		"Searched what would have to be bought", "zonesurvival", klog.KObj(s.asked),
		"replays", s.steps, "cpu", s.took,
	)
	return 0, p.keep(&s.lack, s.Found()) || found, nil
}

// keep keeps what has been found, and reports whether it is another answer than that of the round.
func (p *purchases) keep(l *lack, bought *v1alpha1.SurvivalPurchase) bool {
	p.found[l.spec()] = bought
	return !equality.Semantic.DeepEqual(l.status.WouldSurviveWith, bought)
}

// begin begins the next searches, if there are any, and reports whether it has found something new. Those are first
// that have no answer to their spec, and among them those whose losses displace the fewest pods; then those whose
// answer is the oldest.
func (p *purchases) begin(ctx context.Context) (found bool) {
	for p.newest != nil && len(p.searches) < maxSearches {
		now := cluster{p.newest.options.Sim.Now, p.newest.options.Fingerprint}
		var next *lack
		for i := range p.newest.lacks {
			l := &p.newest.lacks[i]
			underWay := slices.ContainsFunc(p.searches, func(s *search) bool { return s.asked.UID == l.asked.UID })
			if !underWay && p.searched[l.spec()].fingerprint != now.fingerprint && (next == nil || p.goesBefore(l, next)) {
				next = l
			}
		}
		if next == nil {
			break
		}
		p.searched[next.spec()] = now
		s := survival.NewPurchaseSearch(ctx, p.newest.objects, next.asked, p.newest.options, next.status)
		if s == nil {
			found = p.keep(next, nil) || found
			continue
		}
		p.searches = append(p.searches, &search{PurchaseSearch: s, lack: *next})
	}
	return found
}

// goesBefore reports whether one ZoneSurvival is searched before another one.
func (p *purchases) goesBefore(a, b *lack) bool {
	return cmp.Or(
		p.searched[a.spec()].readAt.Compare(p.searched[b.spec()].readAt), cmp.Compare(a.displaced(), b.displaced()),
	) < 0
}

// close ends the searches that are under way.
func (p *purchases) close() {
	for _, s := range p.searches {
		s.Close()
	}
	p.searches = nil
}

// writePurchases writes what has been found for those whose answer is still False.
func (r *round) writePurchases(ctx context.Context) {
	found := r.purchases.found
	for _, s := range r.asked {
		spec := askedSpec{s.UID, s.Generation}
		bought, searched := found[spec]
		if !searched {
			continue
		}
		last := r.lastAnswer(s.Name)
		if meta.IsStatusConditionFalse(last.computed.Conditions, v1alpha1.ConditionSurvives) &&
			!equality.Semantic.DeepEqual(last.shown.WouldSurviveWith, bought) {
			last.computed.WouldSurviveWith, last.shown.WouldSurviveWith = bought.DeepCopy(), bought.DeepCopy()
			if !r.writeStatus(ctx, s, last) {
				continue // the next look has a newer object
			}
		}
		delete(found, spec)
	}
	maps.DeleteFunc(found, func(spec askedSpec, _ *v1alpha1.SurvivalPurchase) bool {
		return !slices.ContainsFunc(r.asked, func(s *v1alpha1.ZoneSurvival) bool {
			return spec == askedSpec{s.UID, s.Generation}
		})
	})
}
