package explain

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/buy"
	"zonewise.dev/cluster/census"
	"zonewise.dev/internal/amount"
	"zonewise.dev/sim"
)

// ZoneFit is what a zone offers the pod.
type ZoneFit struct {
	Zone  string `json:"zone"`
	Nodes int    `json:"nodes"`
	// Fit is how many of them would take the pod now.
	Fit         int               `json:"fit"`
	Policies    []PolicyCount     `json:"policies,omitempty"`
	Constraints []ConstraintCount `json:"constraints,omitempty"`
	Holds       []Hold            `json:"holds,omitempty"`
	Obstacles   []Obstacle        `json:"obstacles,omitempty"`
}

// PolicyCount is what a ZoneSpreadPolicy has in the zone, in the words of its status.
type PolicyCount struct {
	Policy  string             `json:"policy"`
	Pods    int64              `json:"pods"`
	Desired int64              `json:"desired"`
	State   v1alpha1.ZoneState `json:"state,omitempty"`
}

// ConstraintCount is the pods that one of the pod's topologySpreadConstraints counts in the zone.
type ConstraintCount struct {
	Pods    int   `json:"pods"`
	Fewest  int   `json:"fewest"`
	MaxSkew int32 `json:"maxSkew"`
}

// Hold is unused slots of a ZoneReservation in the zone.
type Hold struct {
	Reservation string `json:"reservation"`
	Unused      int64  `json:"unused"`
	// Own slots are those that the pod may use.
	Own bool `json:"own,omitempty"`
}

// Obstacle says why a plugin refuses the pod on some nodes, in the plugin's words.
type Obstacle struct {
	Plugin string `json:"plugin"`
	Words  string `json:"message"`
	Nodes  int    `json:"nodes"`
	// Lacks has, of each of the kinds of nodes that lack least, the node that does.
	Lacks []NodeLack `json:"lacks,omitempty"`
}

// NodeLack is what a node has too little of for the pod.
type NodeLack struct {
	Node      string         `json:"node"`
	Resources []ResourceLack `json:"resources"`
	// share is the part of the request that lacks, of the scarcest resource.
	share float64
}

// ResourceLack is a resource of which a node has less free than the pod asks for.
type ResourceLack struct {
	Resource string `json:"resource"`
	Lacks    string `json:"lacks"`
	Free     string `json:"free"`
	Asked    string `json:"asked"`
}

// mostKinds is the largest number of kinds of nodes of a zone of which it is said what they lack.
const mostKinds = 3

// zonesOf groups an answer by zone.
func zonesOf(c *census.Census, s *sim.Sim, pod *corev1.Pod, answer *sim.Evaluation) []ZoneFit {
	zones := map[string]*ZoneFit{}
	type reason struct{ zone, plugin, words string }
	refused, lacks := map[reason]int{}, map[reason]map[string]NodeLack{}
	for i := range answer.Nodes {
		n := &answer.Nodes[i]
		name := n.Node.Labels[corev1.LabelTopologyZone]
		z := zones[name]
		if z == nil {
			z = &ZoneFit{Zone: name}
			zones[name] = z
		}
		z.Nodes++
		if n.Refusal == nil {
			z.Fit++
			continue
		}
		why := reason{name, n.Refusal.Plugin, n.Refusal.Message()}
		refused[why]++
		if lack := lackOf(c, pod, n); len(lack.Resources) > 0 {
			if lacks[why] == nil {
				lacks[why] = map[string]NodeLack{}
			}
			kind := buy.KindOf(n.Node)
			if known, ok := lacks[why][kind]; !ok || lack.share < known.share {
				lacks[why][kind] = lack
			}
		}
	}
	for refusal, nodes := range refused {
		z := zones[refusal.zone]
		least := slices.SortedFunc(maps.Values(lacks[refusal]), func(a, b NodeLack) int {
			return cmp.Or(cmp.Compare(a.share, b.share), strings.Compare(a.Node, b.Node))
		})
		z.Obstacles = append(z.Obstacles, Obstacle{Plugin: refusal.plugin, Words: refusal.words, Nodes: nodes, Lacks: least[:min(len(least), mostKinds)]})
	}
	for _, policy := range policiesOf(s, pod) {
		for _, share := range policy.Status.Zones {
			if z := zones[share.Name]; z != nil {
				z.Policies = append(z.Policies, PolicyCount{policy.Namespace + "/" + policy.Name, share.Pods, share.Desired, share.State})
			}
		}
	}
	for i := range pod.Spec.TopologySpreadConstraints {
		constraint := &pod.Spec.TopologySpreadConstraints[i]
		if !census.OverZones(*constraint) || constraint.WhenUnsatisfiable != corev1.DoNotSchedule {
			continue
		}
		count := c.Spread(pod, constraint)
		for name, pods := range count.Zones {
			if z := zones[name]; z != nil {
				z.Constraints = append(z.Constraints, ConstraintCount{pods, count.Fewest, count.MaxSkew})
			}
		}
	}
	for _, reservation := range reservations(s) {
		for _, slots := range reservation.Status.Zones {
			if z := zones[slots.Name]; z != nil && slots.Held > slots.Used {
				z.Holds = append(z.Holds, Hold{reservation.Name, slots.Held - slots.Used, census.OwnedBy(reservation, pod)})
			}
		}
	}
	var out []ZoneFit
	for _, name := range slices.Sorted(maps.Keys(zones)) {
		z := zones[name]
		slices.SortFunc(z.Obstacles, func(a, b Obstacle) int {
			return cmp.Or(cmp.Compare(b.Nodes, a.Nodes), strings.Compare(a.Plugin, b.Plugin), strings.Compare(a.Words, b.Words))
		})
		out = append(out, *z)
	}
	return out
}

// lackOf returns what a node lacks of the resources that the scheduler has found insufficient.
func lackOf(c *census.Census, pod *corev1.Pod, n *sim.NodeEvaluation) NodeLack {
	lack, node, requests := NodeLack{Node: n.Node.Name}, c.FindNode(n.Node.Name), census.Requests(pod)
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		if node == nil || !slices.Contains(n.Refusal.Reasons, "Insufficient "+string(name)) {
			continue
		}
		asked, free := amount.Of(name, requests[name]), max(0, node.Allocatable[name]-node.Requested[name])
		if asked <= free { // nominated pods take the rest
			continue
		}
		lack.share = max(lack.share, float64(asked-free)/float64(asked))
		lack.Resources = append(lack.Resources, ResourceLack{
			Resource: string(name), Lacks: amount.Quantity(name, asked-free).String(), Free: amount.Quantity(name, free).String(),
			Asked: amount.Quantity(name, asked).String(),
		})
	}
	return lack
}

// policiesOf returns the policies that select a pod.
func policiesOf(s *sim.Sim, pod *corev1.Pod) []*v1alpha1.ZoneSpreadPolicy {
	return slices.DeleteFunc(sim.List[*v1alpha1.ZoneSpreadPolicy](s), func(p *v1alpha1.ZoneSpreadPolicy) bool {
		return !census.SelectedBy(p, pod)
	})
}

func reservations(s *sim.Sim) []*v1alpha1.ZoneReservation {
	return sim.List[*v1alpha1.ZoneReservation](s)
}
