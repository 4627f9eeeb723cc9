package preempt

import (
	"context"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/permitgate/proposal"
)

// trial is the cluster, for members of some classes, after pods have been evicted.
type trial struct {
	*Search
	states []fwk.CycleState // by class
	nodes  map[int]fwk.NodeInfo
}

func (s *Search) try() *trial {
	return &trial{Search: s, states: cloned(s.states), nodes: map[int]fwk.NodeInfo{}}
}

func cloned(states []fwk.CycleState) []fwk.CycleState {
	out := make([]fwk.CycleState, len(states))
	for k, state := range states {
		out[k] = state.Clone()
	}
	return out
}

// node returns the copy of a node that the trial may change.
func (t *trial) node(i int) fwk.NodeInfo {
	if t.nodes[i] == nil {
		t.nodes[i] = t.sites[i].info.Snapshot()
	}
	return t.nodes[i]
}

// remove takes pods off their nodes. It reports false if a plugin's RemovePod fails.
func (t *trial) remove(ctx context.Context, pods []*candidate) bool {
	for _, c := range pods {
		node := t.node(c.site)
		if err := node.RemovePod(klog.FromContext(ctx), c.pod()); err != nil {
			return false
		}
		for k, class := range t.classes {
			if !t.Handle.RunPreFilterExtensionRemovePod(ctx, t.states[k], class.Pod, c.info, node).IsSuccess() {
				return false
			}
		}
	}
	return true
}

// add puts a pod onto a node.
func (t *trial) add(ctx context.Context, info fwk.PodInfo, i int) bool {
	node := t.node(i)
	node.AddPodInfo(info)
	for k, class := range t.classes {
		if !t.Handle.RunPreFilterExtensionAddPod(ctx, t.states[k], class.Pod, info, node).IsSuccess() {
			return false
		}
	}
	return true
}

// fits reports whether the filters let a member of a class onto a node.
func (t *trial) fits(ctx context.Context, c *class, i int) bool {
	k := slices.Index(t.classes, c)
	return t.Handle.RunFilterPlugins(ctx, t.states[k], c.Pod, t.node(i)).IsSuccess()
}

// commit applies the trial to the search.
func (t *trial) commit() {
	t.Search.states = t.states
	for i, info := range t.nodes {
		t.sites[i].info = info
	}
}

// accept places a member of a class on an offer's node, if the filters accept it.
func (s *Search) accept(ctx context.Context, c *class, o offer) bool {
	pods := s.all(o.pods)
	t := s.try()
	if !t.remove(ctx, pods) || !t.fits(ctx, c, o.site) || !t.add(ctx, c.like, o.site) {
		return false
	}
	t.commit()
	s.spent.add(o.cost)
	for _, one := range pods {
		one.gone = true
		add(s.free(one.site), one.amounts, 1)
		if one.gang != nil {
			one.gang.taken++
		}
		if !one.leaving {
			s.budgets.take(one.budgets)
		}
	}
	add(s.free(o.site), c.request, -1)
	return true
}

// free returns what is free on a site, to be changed.
func (s *Search) free(i int) []int64 {
	at := s.sites[i]
	if at.free == nil {
		at.free = make([]int64, len(s.names))
		s.Request.Cluster.Free(i, s.names, at.free)
	}
	return at.free
}

// open finds the pods that close a node to a member: it removes all that may be evicted, and puts them back, the highest
// priority first, as long as the filters accept the member.
func (s *Search) open(ctx context.Context, c *class, i int) (offer, bool) {
	var pods []*candidate
	for _, one := range s.candidates(i) {
		if !one.gone && s.mayTake(one) {
			pods = append(pods, one)
		}
	}
	t := s.try()
	if len(pods) == 0 || !t.remove(ctx, s.all(pods)) || !t.fits(ctx, c, i) {
		return offer{}, false
	}
	lack := s.lack(c, i)
	for _, one := range s.all(pods) {
		if one.site == i {
			add(lack, one.amounts, -1)
		}
	}
	if short(lack) {
		return offer{}, false
	}
	for k, one := range slices.Backward(pods) {
		if add(lack, one.amounts, 1); !short(lack) {
			with := &trial{Search: s, states: cloned(t.states), nodes: maps.Clone(t.nodes)}
			with.nodes[i] = t.node(i).Snapshot()
			if with.add(ctx, one.info, i) && with.fits(ctx, c, i) {
				pods = slices.Delete(pods, k, k+1)
				t = with
				continue
			}
		}
		add(lack, one.amounts, -1)
	}
	return s.priced(c, i, pods, lack, true), true
}

// podInfo implements fwk.PodInfo for a member, since plugins cannot use the framework's own type. It has no preferred terms:
// nothing is scored here.
type podInfo struct {
	pod             *v1.Pod
	affinity, apart []fwk.AffinityTerm
	resource        fwk.PodResource
}

var _ fwk.PodInfo = &podInfo{}

// NewPodInfo returns what the framework is told of a pod that is not its own.
func NewPodInfo(pod *v1.Pod) fwk.PodInfo {
	p := &podInfo{pod: pod}
	amounts := &amounts{scalar: map[v1.ResourceName]int64{}}
	for _, a := range proposal.Requests(pod) {
		switch a.Name {
		case v1.ResourceCPU:
			amounts.cpu = a.Value
		case v1.ResourceMemory:
			amounts.memory = a.Value
		case v1.ResourceEphemeralStorage:
			amounts.storage = a.Value
		case v1.ResourcePods:
		default:
			amounts.scalar[a.Name] = a.Value
		}
	}
	p.resource = fwk.PodResource{Resource: amounts, Non0CPU: amounts.cpu, Non0Mem: amounts.memory}
	if affinity := pod.Spec.Affinity; affinity != nil {
		if a := affinity.PodAffinity; a != nil {
			p.affinity = terms(pod, a.RequiredDuringSchedulingIgnoredDuringExecution)
		}
		if a := affinity.PodAntiAffinity; a != nil {
			p.apart = terms(pod, a.RequiredDuringSchedulingIgnoredDuringExecution)
		}
	}
	return p
}

func terms(pod *v1.Pod, of []v1.PodAffinityTerm) (out []fwk.AffinityTerm) {
	for i := range of {
		out = append(out, term(pod, &of[i]))
	}
	return out
}

// term compiles a term. A selector that does not parse selects nothing.
func term(pod *v1.Pod, of *v1.PodAffinityTerm) fwk.AffinityTerm {
	parse := func(selector *metav1.LabelSelector) labels.Selector {
		parsed, err := metav1.LabelSelectorAsSelector(selector)
		if err != nil {
			return labels.Nothing()
		}
		return parsed
	}
	t := fwk.AffinityTerm{
		Namespaces: sets.New(of.Namespaces...), Selector: parse(of.LabelSelector),
		TopologyKey: of.TopologyKey, NamespaceSelector: parse(of.NamespaceSelector),
	}
	if len(of.Namespaces) == 0 && of.NamespaceSelector == nil {
		t.Namespaces.Insert(pod.Namespace)
	}
	return t
}

// GetPod implements fwk.PodInfo, as the following do.
func (p *podInfo) GetPod() *v1.Pod                                           { return p.pod }
func (p *podInfo) GetRequiredAffinityTerms() []fwk.AffinityTerm              { return p.affinity }
func (p *podInfo) GetRequiredAntiAffinityTerms() []fwk.AffinityTerm          { return p.apart }
func (p *podInfo) GetPreferredAffinityTerms() []fwk.WeightedAffinityTerm     { return nil }
func (p *podInfo) GetPreferredAntiAffinityTerms() []fwk.WeightedAffinityTerm { return nil }
func (p *podInfo) CalculateResource() fwk.PodResource                        { return p.resource }

// amounts is what a pod requests. It implements the part of fwk.Resource that nodes use.
type amounts struct {
	fwk.Resource
	cpu, memory, storage int64
	scalar               map[v1.ResourceName]int64
}

func (a *amounts) GetMilliCPU() int64                            { return a.cpu }
func (a *amounts) GetMemory() int64                              { return a.memory }
func (a *amounts) GetEphemeralStorage() int64                    { return a.storage }
func (a *amounts) GetScalarResources() map[v1.ResourceName]int64 { return a.scalar }
