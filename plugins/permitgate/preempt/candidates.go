package preempt

import (
	"cmp"
	"math"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"
)

// site is a node with the pods there that may be evicted, the least important first.
type site struct {
	name       string
	free       []int64 // with all pods there but leavers; nil until it is needed
	room       int     // how many members it takes as it is, if it is usable
	candidates []*candidate
	listed     bool // candidates are known
}

// candidate is a pod that may be evicted.
type candidate struct {
	info     fwk.PodInfo
	site     int
	amounts  []int64
	priority int32
	leaving  bool // by itself: it is only waited for
	gang     *victimGang
	budgets  []*budget // that count its eviction, once covered is set
	covered  bool
}

func (c *candidate) pod() *v1.Pod { return c.info.GetPod() }

// importance orders candidates: those that leave anyway, then by priority, then members of gangs after single pods.
type importance int64

const (
	// importanceOfNone is below that of every candidate, importanceOfAll is not.
	importanceOfNone    importance = math.MinInt64
	importanceOfLeaving importance = math.MinInt64 + 1
	importanceOfAll     importance = math.MaxInt64
)

func (c *candidate) importance() importance {
	switch {
	case c.leaving:
		return importanceOfLeaving
	case c.gang != nil:
		return 2*importance(c.priority) + 1
	}
	return 2 * importance(c.priority)
}

// victimGang is a gang that candidates are members of. It keeps MinMember members, or is evicted as a whole.
type victimGang struct {
	*Gang
	listed  bool         // members are known
	members []*candidate // all of it; nil if one may not be evicted
}

// listSite lists the candidates of a site, once.
func (s *Search) listSite(i int) *site {
	at := &s.sites[i]
	if at.listed {
		return at
	}
	at.listed = true
	pods := s.Nodes[i].GetPods()
	candidates, amounts := make([]candidate, 0, len(pods)), make([]int64, len(pods)*len(s.names))
	for _, info := range pods {
		pod := info.GetPod()
		own := s.OnItsWay(pod)
		leaving := own || pod.DeletionTimestamp != nil
		if leaving && s.Stays(pod) || !leaving && !s.MayEvict(pod) {
			continue
		}
		c := candidate{info: info, site: i, leaving: leaving, priority: corev1.PodPriority(pod)}
		c.amounts, amounts = amounts[:len(s.names):len(s.names)], amounts[len(s.names):]
		writeAmounts(info, s.names, c.amounts)
		if !leaving {
			c.gang = s.gangOf(pod)
		}
		candidates = append(candidates, c)
		added := &candidates[len(candidates)-1]
		if own {
			s.leavers = append(s.leavers, added)
			add(s.free(i), added.amounts, 1)
			continue
		}
		at.candidates = append(at.candidates, added)
	}
	slices.SortStableFunc(at.candidates, compareImportance)
	return at
}

// free returns what all pods on a site leave, without those that have just lost it.
func (s *Search) free(i int) []int64 {
	at := &s.sites[i]
	if at.free == nil {
		at.free = make([]int64, len(s.names))
		s.Request.Cluster.Free(i, s.names, at.free)
	}
	return at.free
}

// compareImportance orders the candidates of a node: by importance, then those with the most room, then the youngest.
func compareImportance(a, b *candidate) int {
	return cmp.Or(
		cmp.Compare(a.importance(), b.importance()), cmp.Compare(slices.Max(b.amounts), slices.Max(a.amounts)), startOf(b.pod()).Compare(startOf(a.pod())),
	)
}

// first orders the one of two that has a property before the other.
func first(hasIt bool) int {
	if hasIt {
		return -1
	}
	return 1
}

func startOf(pod *v1.Pod) time.Time {
	if pod.Status.StartTime == nil {
		return pod.CreationTimestamp.Time
	}
	return pod.Status.StartTime.Time
}

// budgetsOf returns the budgets that the eviction of a candidate counts against. They are found when they are first
// needed.
func (s *Search) budgetsOf(c *candidate) []*budget {
	if !c.covered && !c.leaving {
		c.covered, c.budgets = true, s.budgets.covering(c.pod())
	}
	return c.budgets
}

// gangOf returns the gang that a candidate is a member of, nil for none.
func (s *Search) gangOf(pod *v1.Pod) *victimGang {
	gang := s.GangOf(pod)
	if gang == nil {
		return nil
	}
	g := s.gangs[gang]
	if g == nil {
		g = &victimGang{Gang: gang}
		s.gangs[gang] = g
	}
	return g
}

// membersOf returns all bound members of a gang, nil if one of them may not be evicted.
func (s *Search) membersOf(g *victimGang) []*candidate {
	if g.listed {
		return g.members
	}
	g.listed = true
	members := make([]*candidate, 0, len(g.Bound))
	for _, pod := range g.Bound {
		i, there := s.byName[pod.Spec.NodeName]
		if !there {
			return nil
		}
		candidates := s.listSite(i).candidates
		at := slices.IndexFunc(candidates, func(c *candidate) bool { return c.gang == g && c.pod().UID == pod.UID })
		if at < 0 {
			return nil
		}
		members = append(members, candidates[at])
	}
	g.members = members
	return members
}

// writeAmounts writes what a pod takes from its node, by the node's own account.
func writeAmounts(info fwk.PodInfo, names []v1.ResourceName, into []int64) {
	r := info.CalculateResource().Resource
	for j, name := range names {
		switch name {
		case v1.ResourcePods:
			into[j] = 1
		case v1.ResourceCPU:
			into[j] = r.GetMilliCPU()
		case v1.ResourceMemory:
			into[j] = r.GetMemory()
		case v1.ResourceEphemeralStorage:
			into[j] = r.GetEphemeralStorage()
		default:
			into[j] = r.GetScalarResources()[name]
		}
	}
}
