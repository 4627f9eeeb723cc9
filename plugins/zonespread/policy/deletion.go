package policy

const (
	// costStep is how far the deletion costs of a zone with weight 1 lie apart where weights differ. It is the greatest
	// weight, so that those of no zone are equal.
	costStep = 10_000
	// forbiddenCost is the highest deletion cost in a zone with weight 0, below those of all other zones.
	forbiddenCost = -1_000_000_000
)

// DeletionCost returns the deletion cost (controller.kubernetes.io/pod-deletion-cost) of a pod that has a rank, from 0
// on, among the pods that its ReplicaSet has in a zone. When the ReplicaSet is made smaller, those with the lowest
// costs leave first.
//
// The cost is -rank where all weights are equal, and else -10,000 * rank / weight, rounded up. So the next pod leaves a
// zone with the greatest (c - 1) / w, with c the pods and w the weight. By that no zone gets further ahead of its share
// than a maxSkew of 1 allows or than it was before: exactly so as long as no product of two weights is above 10,000.
func (p *Policy) DeletionCost(zone string, rank int) int32 {
	weight, _ := p.weightOf(zone)
	cost := -int64(rank)
	switch {
	case weight == 0:
		return int32(max(forbiddenCost+cost, 2*forbiddenCost))
	case p.unequal:
		cost = cost * costStep / weight
	}
	return int32(max(cost, forbiddenCost+1))
}
