package world

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"zonewise.dev/plugins/reservecache/ledger"
	"zonewise.dev/plugins/zonespread/policy"
)

// Obstacle is what keeps a pod off some nodes of a zone.
type Obstacle struct {
	// Plugin is the scheduler's plugin that refuses the nodes.
	Plugin string `json:"plugin"`
	// Words say why.
	Words string `json:"words"`
	// Nodes is how many nodes have it, and Alone how many have no other obstacle.
	Nodes int `json:"nodes"`
	Alone int `json:"alone"`
	// Remedy is what would take it away, empty when nothing but another spec of the pod would.
	Remedy string `json:"remedy,omitempty"`
}

// ZoneAnswer is what a zone is to a waiting pod.
type ZoneAnswer struct {
	Zone string `json:"zone"`
	// Nodes are the zone's nodes, Fit those that would take the pod now.
	Nodes int `json:"nodes"`
	Fit   int `json:"fit"`
	// Policies are what the pod's ZoneSpreadPolicies count in the zone.
	Policies []PolicyCount `json:"policies,omitempty"`
	// Constraints are what its hard topologySpreadConstraints over zones count.
	Constraints []ConstraintCount `json:"constraints,omitempty"`
	// Holds are the unused slots of reservations in the zone.
	Holds []HoldCount `json:"holds,omitempty"`
	// Obstacles keep the pod off, those of most nodes first.
	Obstacles []Obstacle `json:"obstacles,omitempty"`
}

// PolicyCount is one policy in one zone.
type PolicyCount struct {
	Policy string `json:"policy"`
	// Pods count for the pod's own revision; Desired is of all.
	Pods    int64  `json:"pods"`
	Desired int64  `json:"desired"`
	State   string `json:"state,omitempty"`
	Allowed bool   `json:"allowed"`
	Rule    string `json:"rule,omitempty"`
	Message string `json:"message,omitempty"`
}

// ConstraintCount is one constraint in one zone.
type ConstraintCount struct {
	TopologyKey string `json:"topologyKey"`
	Pods        int    `json:"pods"`
	Fewest      int    `json:"fewest"`
	MaxSkew     int32  `json:"maxSkew"`
	Allowed     bool   `json:"allowed"`
}

// HoldCount is one reservation in one zone.
type HoldCount struct {
	Reservation string `json:"reservation"`
	Unused      int    `json:"unused"`
	// Own tells whether the pod is an owner of the slots.
	Own bool `json:"own"`
}

// Ask answers where a waiting pod may go, zone by zone.
func (w *World) Ask(pod *corev1.Pod) []ZoneAnswer {
	c := w.newClass(pod)
	answers := map[string]*ZoneAnswer{}
	obstacles := map[string]map[[2]string]*Obstacle{}
	nearest := map[*Obstacle]float64{} // the smallest part of its requests that the pod lacks on a node
	for i, n := range w.Nodes {
		if n.Lost {
			continue
		}
		a := answers[n.Zone]
		if a == nil {
			a = &ZoneAnswer{Zone: n.Zone}
			answers[n.Zone], obstacles[n.Zone] = a, map[[2]string]*Obstacle{}
		}
		a.Nodes++
		found := w.obstacles(c, i)
		if len(found) == 0 {
			a.Fit++
		}
		for _, o := range found {
			key := [2]string{o.Plugin, o.Words}
			known := obstacles[n.Zone][key]
			if known == nil {
				known = &o
				obstacles[n.Zone][key] = known
			}
			known.Nodes++
			if len(found) > 1 {
				continue
			}
			known.Alone++
			if o.Plugin == "NodeResourcesFit" {
				missing, words := n.missing(c)
				if least, seen := nearest[known]; !seen || missing < least {
					nearest[known], known.Remedy = missing, words
				}
			}
		}
	}
	unused := w.UnusedSlots()
	out := make([]ZoneAnswer, 0, len(answers))
	for _, zone := range slices.Sorted(maps.Keys(answers)) {
		a := answers[zone]
		for _, o := range obstacles[zone] {
			a.Obstacles = append(a.Obstacles, *o)
		}
		slices.SortFunc(a.Obstacles, func(a, b Obstacle) int {
			return cmp.Or(cmp.Compare(b.Nodes, a.Nodes), cmp.Compare(a.Plugin, b.Plugin), cmp.Compare(a.Words, b.Words))
		})
		w.countIn(c, a, unused)
		out = append(out, *a)
	}
	return out
}

// countIn fills in what policies, constraints and reservations have in a zone.
func (w *World) countIn(c *Class, a *ZoneAnswer, unused map[*Hold]map[string]int) {
	for k, p := range w.PoliciesOf(c.pod) {
		if p.Compiled.TopologyKey() != corev1.LabelTopologyZone {
			continue
		}
		table := c.tables[k]
		count := PolicyCount{Policy: p.Compiled.Key(), Pods: table.pods[a.Zone]}
		for _, z := range w.Status(p, 0).Zones {
			if z.Name == a.Zone {
				count.Desired, count.State = z.Desired, string(z.State)
			}
		}
		rule := table.Rule(a.Zone)
		if a.Zone == "" {
			rule = policy.NoLabel
		}
		count.Allowed = rule.OK() || !table.hard
		if !rule.OK() {
			count.Rule, count.Message = rule.String(), table.Message(a.Zone)
		}
		a.Policies = append(a.Policies, count)
	}
	for _, s := range c.zones {
		if !s.hard || s.spec.TopologyKey != corev1.LabelTopologyZone {
			continue
		}
		for at, name := range s.names {
			if name == a.Zone {
				a.Constraints = append(a.Constraints, ConstraintCount{
					TopologyKey: s.spec.TopologyKey, Pods: s.counts[at], Fewest: s.minimum, MaxSkew: s.spec.MaxSkew,
					Allowed: s.allows(at),
				})
			}
		}
	}
	for _, h := range w.holds {
		if n := unused[h][a.Zone]; n > 0 {
			a.Holds = append(a.Holds, HoldCount{Reservation: h.Object.Name, Unused: n, Own: h == c.owner})
		}
	}
}

// obstacles lists all that keeps a class off a node, in the order in which the scheduler asks.
func (w *World) obstacles(c *Class, i int) []Obstacle {
	n := w.Nodes[i]
	var out []Obstacle
	add := func(plugin, words, remedy string) {
		out = append(out, Obstacle{Plugin: plugin, Words: words, Remedy: remedy})
	}
	switch c.static[i] {
	case mismatched:
		add("NodeAffinity", "outside of the pod's node selector or affinity", "")
	case unschedulable:
		add("NodeUnschedulable", "cordoned", "uncordon a node")
	case tainted:
		add("TaintToleration", "tainted "+taintWords(Untolerated(n.Object, c.pod.Spec.Tolerations)), "remove the taint, or tolerate it")
	case elsewhere:
		add("VolumeBinding", "away from the pod's volume", "")
	case noKey:
		add("ZoneSpread", "without the topology key of a constraint", "label the nodes")
	}
	if c.taken != nil && c.taken[i] {
		add("NodePorts", "with the pod's host port in use", "free the port")
	}
	if lacks := n.lacks(c); lacks != "" {
		add("NodeResourcesFit", "short of "+lacks, "")
	} else if verdict := n.room(c); !verdict.Fits {
		if verdict.By != nil {
			add("ReserveCache", fmt.Sprintf("short of %s, which %s holds", verdict.Lacks, verdict.By.Name),
				fmt.Sprintf("fewer slots in %s, or a priority above %d", verdict.By.Name, verdict.By.Priority))
		} else {
			add("ReserveCache", "without a slot of the reservation that the pod has to run in", "more slots in "+c.owner.claim.Name)
		}
	}
	for _, s := range c.zones {
		if s.hard && s.keyOf[i] >= 0 && !s.fits(i) {
			add("ZoneSpread", s.words(s.keyOf[i]), s.remedy())
		}
	}
	for _, r := range c.tables {
		if rule := r.rule(i); !rule.OK() {
			add("ZoneSpread", r.MessageFor(n.Object.Labels), r.remedy(rule))
		}
	}
	if c.forbidden[i] {
		add("InterPodAffinity", "kept by the anti-affinity of a pod that is there", "")
	}
	for _, t := range c.near {
		if t.fits(n, c.near) {
			continue
		}
		if t.anti {
			add("InterPodAffinity", "with a pod that the pod's anti-affinity avoids over "+t.key, "")
		} else {
			add("InterPodAffinity", "away from the pods of its affinity over "+t.key, "")
		}
	}
	return out
}

func taintWords(t *corev1.Taint) string {
	if t == nil {
		return ""
	}
	if t.Value == "" {
		return t.Key
	}
	return t.Key + "=" + t.Value
}

// lacks names the resources that a node lacks for a class.
func (n *Node) lacks(c *Class) string {
	var out []string
	for _, name := range c.names {
		if n.Requested.Amount(name)+c.requests.Amount(name) > n.Allocatable.Amount(name) {
			out = append(out, string(name))
		}
	}
	return strings.Join(out, " and ")
}

// missing says how much of its requests a class lacks on a node, as a share of them summed up and in words.
func (n *Node) missing(c *Class) (share float64, words string) {
	var parts []string
	for _, name := range c.names {
		want, free := c.requests.Amount(name), n.Allocatable.Amount(name)-n.Requested.Amount(name)
		if want > free {
			share += float64(want-free) / float64(want)
			parts = append(parts, fmt.Sprintf("%s more %s (%s free, %s asked for)", Amount(name, want-free), name, Amount(name, max(free, 0)), Amount(name, want)))
		}
	}
	return share, strings.Join(parts, " and ") + " on node " + n.Object.Name
}

// allows tells whether one more pod may go to a domain.
func (s *constraint) allows(at int) bool {
	for i, d := range s.keyOf {
		if d == at {
			return s.fits(i)
		}
	}
	return false
}

func (s *constraint) words(at int) string {
	return fmt.Sprintf("topologySpreadConstraint over %s: %s has %d pods, the fewest is %d, maxSkew %d", s.spec.TopologyKey, s.names[at], s.counts[at], s.minimum, s.spec.MaxSkew)
}

// remedy names the domains that hold the others back.
func (s *constraint) remedy() string {
	var behind []string
	for at, n := range s.counts {
		if s.exists[at] && n == s.minimum {
			behind = append(behind, s.names[at])
		}
	}
	if len(behind) == 0 {
		return "more domains: fewer than minDomains exist"
	}
	slices.Sort(behind)
	if len(behind) > 3 {
		behind = append(behind[:3:3], "others")
	}
	return "room in " + strings.Join(behind, ", ") + ", which has the fewest"
}

// remedy says what would make a policy allow a zone.
func (r *ruled) remedy(rule policy.Rule) string {
	switch rule {
	case policy.Forbidden:
		return "a weight above 0 for the zone"
	case policy.MaxPods, policy.MaxPerZone, policy.QuorumSafe:
		return "one pod fewer of the policy in the zone, or a higher cap"
	case policy.MinZones:
		return "more zones: fewer than minZones are available"
	case policy.NoLabel:
		return "label the nodes"
	}
	var open []string
	for i, zone := range r.zones {
		if r.rules[i].OK() {
			open = append(open, zone)
		}
	}
	slices.Sort(open)
	if len(open) == 0 {
		return ""
	}
	return "room in zone " + strings.Join(open, ", ") + ", whose turn it is"
}

// Room is what one zone has, without lost nodes.
type Room struct {
	Zone                   string
	Nodes, Ready, Pods     int
	Allocatable, Requested ledger.Resources
}

// Rooms returns what each zone has, in order.
func (w *World) Rooms() []Room {
	rooms := map[string]*Room{}
	for _, n := range w.Nodes {
		if n.Lost {
			continue
		}
		r := rooms[n.Zone]
		if r == nil {
			r = &Room{Zone: n.Zone}
			rooms[n.Zone] = r
		}
		r.Nodes++
		if ready, _ := Ready(n.Object); ready {
			r.Ready++
		}
		r.Pods += int(n.Requested.Pods)
		r.Allocatable.Add(&n.Allocatable, 1)
		r.Requested.Add(&n.Requested, 1)
	}
	var out []Room
	for _, zone := range slices.Sorted(maps.Keys(rooms)) {
		out = append(out, *rooms[zone])
	}
	return out
}
