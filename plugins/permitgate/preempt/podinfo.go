package preempt

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/permitgate/proposal"
)

// podInfo implements fwk.PodInfo for a member, since plugins cannot use the framework's own type. It has no preferred
// terms: nothing is scored here.
type podInfo struct {
	pod             *v1.Pod
	affinity, apart []fwk.AffinityTerm
	resource        fwk.PodResource
}

var _ fwk.PodInfo = &podInfo{}

// NewPodInfo returns what the framework is told of a pod that is not its own.
func NewPodInfo(pod *v1.Pod) fwk.PodInfo { return newPodInfo(pod) }

func newPodInfo(pod *v1.Pod) *podInfo {
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

// IsApartFrom reports whether the anti-affinity of a pod is against one of others that have no terms of their own.
// kube-scheduler lets a pod such as that come to a node to which this one is nominated: InterPodAffinity, which has nothing
// to do for it, does not hear of nominated pods.
func IsApartFrom(pod *v1.Pod, others []*v1.Pod) bool {
	apart := newPodInfo(pod).apart
	return len(apart) > 0 && slices.ContainsFunc(others, func(other *v1.Pod) bool {
		info := newPodInfo(other)
		return len(info.affinity)+len(info.apart) == 0 &&
			slices.ContainsFunc(apart, func(term fwk.AffinityTerm) bool { return term.Matches(other, nil) })
	})
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

// amounts is what a pod requests. Filters of other plugins may call every method of it.
type amounts struct {
	cpu, memory, storage int64
	scalar               map[v1.ResourceName]int64
}

var _ fwk.Resource = &amounts{}

func (a *amounts) GetMilliCPU() int64                            { return a.cpu }
func (a *amounts) GetMemory() int64                              { return a.memory }
func (a *amounts) GetEphemeralStorage() int64                    { return a.storage }
func (a *amounts) GetScalarResources() map[v1.ResourceName]int64 { return a.scalar }

// GetAllowedPodNumber is of nodes alone, as in the framework's own requests of a pod.
func (*amounts) GetAllowedPodNumber() int { return 0 }

// SetMaxResource raises each amount to that of rl, if that is larger.
func (a *amounts) SetMaxResource(rl v1.ResourceList) {
	for name, quantity := range rl {
		switch name {
		case v1.ResourceCPU:
			a.cpu = max(a.cpu, quantity.MilliValue())
		case v1.ResourceMemory:
			a.memory = max(a.memory, quantity.Value())
		case v1.ResourceEphemeralStorage:
			a.storage = max(a.storage, quantity.Value())
		case v1.ResourcePods:
		default:
			a.scalar[name] = max(a.scalar[name], quantity.Value())
		}
	}
}
