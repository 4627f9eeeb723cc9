package survival

import (
	"context"
	"maps"
	"math"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cmd/controller/parts"
	"zonewise.dev/survival"
)

const (
	// purchaseShare is what part of the controller's budget of CPU goes into searching what would have to be bought.
	purchaseShare = 0.5
	// purchaseTurn is for how long a search goes on in one turn. Answers and the other parts wait no longer.
	purchaseTurn = time.Second
)

// purchases searches what would have to be bought for ZoneSurvivals whose answer is False, a little in each turn: a
// search takes many times as long as the answers.
type purchases struct {
	budget parts.Meter
	// newest is the last full round, until it is searched. A search that is under way is not given up for it: on a busy
	// cluster none would end.
	newest *lacking
	// current is what is searched, and search the search for the first of its ZoneSurvivals; nil if that is yet to begin.
	current *lacking
	search  *survival.PurchaseSearch
	// found is what the next look at the cluster writes.
	found map[types.UID]*v1alpha1.SurvivalPurchase
}

// lacking is a full round and those of its ZoneSurvivals that are to be searched.
type lacking struct {
	*round
	asked    []*v1alpha1.ZoneSurvival
	statuses []*v1alpha1.ZoneSurvivalStatus
}

// add takes a full round, whose statuses are in the order of those that it asks.
func (p *purchases) add(r *round, statuses []v1alpha1.ZoneSurvivalStatus) {
	p.newest = &lacking{round: r}
	for i, s := range r.asked {
		if meta.IsStatusConditionFalse(statuses[i].Conditions, v1alpha1.ConditionSurvives) {
			p.newest.asked, p.newest.statuses = append(p.newest.asked, s.DeepCopy()), append(p.newest.statuses, statuses[i].DeepCopy())
		}
	}
	if p.search != nil {
		searched := p.current.asked[0]
		if !slices.ContainsFunc(p.newest.asked, func(s *v1alpha1.ZoneSurvival) bool {
			return s.UID == searched.UID && s.Generation == searched.Generation
		}) {
			p.close() // nobody asks any more
			p.current = nil
		}
	}
}

// continueFor goes on with the searches for about as long as limit, by a step at least, and returns after how long it wants to do so again.
// An error is that of ctx.
func (p *purchases) continueFor(ctx context.Context, limit time.Duration) (time.Duration, error) {
	now := time.Now()
	if wait := p.budget.TryBegin(now); wait > 0 {
		return wait, nil
	}
	defer p.budget.End()
	for {
		if p.search == nil {
			if begun, err := p.begin(ctx); !begun {
				return math.MaxInt64, err
			}
		}
		if !p.search.Step() {
			p.found[p.current.asked[0].UID] = p.search.Found()
			p.close()
			p.current.asked, p.current.statuses = p.current.asked[1:], p.current.statuses[1:]
		}
		if ctx.Err() != nil || time.Since(now) >= limit {
			return 0, ctx.Err()
		}
	}
}

// begin begins the next search, if there is one. An error is that of ctx.
func (p *purchases) begin(ctx context.Context) (bool, error) {
	for {
		if p.current == nil || len(p.current.asked) == 0 {
			p.current, p.newest = p.newest, nil
			if p.current == nil {
				return false, nil
			}
			continue
		}
		l := p.current
		search, err := survival.NewPurchaseSearch(ctx, l.objects, l.asked[0], l.options, l.statuses[0])
		if err != nil {
			return false, err
		}
		if search != nil {
			p.search = search
			return true, nil
		}
		p.found[l.asked[0].UID] = nil
		l.asked, l.statuses = l.asked[1:], l.statuses[1:]
	}
}

// close ends a search that is under way.
func (p *purchases) close() {
	if p.search != nil {
		p.search.Close()
		p.search = nil
	}
}

// writePurchases writes what has been found for those whose answer is still False.
func (r *round) writePurchases(ctx context.Context) {
	found := r.purchases.found
	for _, s := range r.asked {
		bought, searched := found[s.UID]
		if !searched {
			continue
		}
		last := r.lastAnswer(s.Name)
		if meta.IsStatusConditionFalse(last.computed.Conditions, v1alpha1.ConditionSurvives) && !equality.Semantic.DeepEqual(last.shown.WouldSurviveWith, bought) {
			last.computed.WouldSurviveWith, last.shown.WouldSurviveWith = bought.DeepCopy(), bought.DeepCopy()
			if !r.writeStatus(ctx, s, last) {
				continue // the next look has a newer object
			}
		}
		delete(found, s.UID)
	}
	maps.DeleteFunc(found, func(uid types.UID, _ *v1alpha1.SurvivalPurchase) bool {
		return !slices.ContainsFunc(r.asked, func(s *v1alpha1.ZoneSurvival) bool { return s.UID == uid })
	})
}
