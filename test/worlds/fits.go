package worlds

import (
	"math"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
)

const minPriority = math.MinInt32

// view is the cluster as its API server shows it, with the arithmetic that the checks need. It is simple on purpose,
// and knows nothing of how room is held: only what the statuses say.
type view struct {
	nodes  []*viewNode
	byName map[string]*viewNode
	pods   []v1.Pod
	zones  map[string][2]int // CPUs, and how many of them are held
	claims map[string]*resourcev1.ResourceClaim
	given  map[types.UID]decision
}

type viewNode struct {
	Node
	lost, cordoned bool
	pods           []*v1.Pod // that take room: bound, or nominated
	used           int       // by pods that are bound
	devices        int       // that no claim has, and no pod that is being prepared will have
	nominated      int       // for others
	held           []heldRoom
	// covered are the owners in slots that are held again when these leave.
	covered map[types.UID]Reservation
}

// heldRoom is what a reservation holds on a node beside the pods that are there.
type heldRoom struct {
	Reservation
	cpu, slots int // a slot is of one pod
}

func (p *player) view() *view {
	c := &view{byName: map[string]*viewNode{}, pods: p.listPods(), zones: map[string][2]int{}}
	for _, n := range p.allNodes() {
		vn := &viewNode{Node: n.Node, lost: n.lost, cordoned: n.cordoned, covered: map[types.UID]Reservation{}}
		c.nodes, c.byName[n.Name] = append(c.nodes, vn), vn
	}
	decisions := p.decisionsSoFar()
	c.given = decisions
	p.addClaims(c)
	for i := range c.pods {
		pod := &c.pods[i]
		if finished(pod) {
			continue
		}
		nominated := pod.Status.NominatedNodeName
		if given, known := decisions[pod.UID]; known {
			nominated = given.node // it is prepared there, maybe for long
		}
		if n := c.byName[pod.Spec.NodeName]; n != nil {
			n.used += requestOf(pod)
			n.pods = append(n.pods, pod)
		} else if n := c.byName[nominated]; n != nil && pod.Spec.NodeName == "" {
			if claim := c.claims[claimName(pod)]; claim != nil && claim.Status.Allocation == nil {
				n.devices--
			}
			n.nominated += requestOf(pod)
			n.pods = append(n.pods, pod)
		}
	}
	p.addHeld(c)
	for _, n := range c.nodes {
		sum := c.zones[n.Zone]
		c.zones[n.Zone] = [2]int{sum[0] + n.CPU, sum[1] + n.heldFrom(minPriority, "")}
	}
	return c
}

// addClaims adds the ResourceClaims, and takes what they have been allocated off the nodes.
func (p *player) addClaims(c *view) {
	c.claims = map[string]*resourcev1.ResourceClaim{}
	for _, n := range c.nodes {
		n.devices = n.Devices
	}
	for _, claim := range p.listClaims() {
		c.claims[claim.Name] = &claim
		if node, _ := deviceOf(&claim); c.byName[node] != nil {
			c.byName[node].devices--
		}
	}
}

// mayHaveDevice reports whether a pod of the workload needs no device, or its own claim is there and has none yet.
func (c *view) mayHaveDevice(w *workload, pod *v1.Pod) bool {
	if w.Device == "" {
		return true
	}
	claim := c.claims[claimName(pod)]
	return claim != nil && w.Device != SharedClaim && claim.Status.Allocation == nil
}

// addHeld adds what the statuses say is held, slots of an earlier spec among it. Where slots that owners use count as
// held, what the owners on the node ask for is taken off.
func (p *player) addHeld(c *view) {
	for name, r := range p.reservations {
		status, held := p.status(name), map[string]heldRoom{}
		add := func(node string, slots int64, size *resource.Quantity) {
			h := held[node]
			held[node] = heldRoom{r, h.cpu + int(slots*size.Value()), h.slots + int(slots)}
		}
		for _, former := range status.Former {
			add(former.Node, former.Slots, former.Requests.Cpu())
		}
		for _, zone := range status.Zones {
			for _, at := range zone.Nodes {
				add(at.Name, at.Slots, status.Requests.Cpu())
			}
		}
		for node, h := range held {
			n := c.byName[node]
			if n == nil {
				continue
			}
			if r.Guarantee || r.Required {
				for _, pod := range n.pods {
					if pod.Spec.NodeName != "" && p.ownerOf(pod) == name {
						h.cpu -= requestOf(pod)
						h.slots--
						n.covered[pod.UID] = r
					}
				}
			}
			if h.cpu > 0 {
				n.held = append(n.held, h)
			}
		}
	}
}

func (c *view) pod(name string) *v1.Pod {
	i := slices.IndexFunc(c.pods, func(pod v1.Pod) bool { return pod.Name == name })
	if i < 0 {
		return nil
	}
	return &c.pods[i]
}

func (n *viewNode) usable() bool { return !n.lost && !n.cordoned }

// heldFrom returns what is held from pods of a priority, but by the reservation that owns them, if one is given.
func (n *viewNode) heldFrom(priority int32, own string) (sum int) {
	for _, h := range n.held {
		if priority <= h.Priority && h.Name != own {
			sum += h.cpu
		}
	}
	return sum
}

func (n *viewNode) holders() string {
	var names []string
	for _, h := range n.held {
		names = append(names, h.Name)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// fractionReached reports whether another slot would have half of the zone held, which a scheduler may refuse.
func (c *view) fractionReached(zone string, cpu int) bool {
	sum := c.zones[zone]
	return 2*(sum[1]+cpu) > sum[0]
}

// roomForSlot returns a node of a zone with room for another slot of a reservation, nil without one or where that may
// be refused.
func (c *view) roomForSlot(r Reservation, zone string) *viewNode {
	if r.SlotsPerNode > 0 || c.fractionReached(zone, r.CPU) {
		return nil
	}
	for _, n := range c.nodes {
		if n.Zone == zone && n.usable() && n.Pool == "" && n.CPU-n.used-n.nominated-n.heldFrom(minPriority, "") >= r.CPU {
			return n
		}
	}
	return nil
}

// unit is what is scheduled at once: a pod, or the members that a gang lacks.
type unit struct {
	key, kind string
	workload  *workload
	pods      []*v1.Pod
	need      int
	owner     *Reservation // nil without one
}

// waiting returns what waits and can be understood here: no unit that has been told to fail, that a policy spreads, or
// that is gated.
func (c *view) waiting(p *player) (units []unit) {
	members, unseen := map[string]int{}, p.deviceFreedUnseen()
	for i := range c.pods {
		pod := &c.pods[i]
		w := p.workloads[pod.Labels[workloadLabel]]
		if w == nil || w.Volume == Unprovisioned || p.fails(w) || p.spreadByPolicy(w) || unseen && w.Device != "" {
			continue
		}
		switch {
		case pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil || !c.mayHaveDevice(w, pod):
			continue
		case w.gang():
			if members[w.Name] == 0 {
				members[w.Name] = len(units) + 1
				units = append(units, unit{key: w.Name, kind: "gang", workload: w})
			}
			u := &units[members[w.Name]-1]
			u.pods = append(u.pods, pod)
		default:
			units = append(units, unit{key: pod.Name, kind: "pod", workload: w, pods: []*v1.Pod{pod}, need: 1})
		}
	}
	for i := range units {
		u := &units[i]
		if r, owned := p.reservations[p.ownerOf(u.pods[0])]; owned {
			u.owner = &r
		}
		if u.kind == "gang" {
			u.need = max(u.workload.quorum()-c.boundOf(u.workload), 1) // one if it is a member beyond the quorum
		}
	}
	return slices.DeleteFunc(units, func(u unit) bool {
		if u.need > len(u.pods) || u.workload.disturbed && u.kind == "gang" {
			return true
		}
		switch u.workload.Spread {
		case OverZones, OnePerNode:
			return u.kind == "gang"
		}
		return u.workload.MinResources
	})
}

// deviceFreedUnseen reports whether a pod may wait beside a free device: kube-scheduler wakes no pod when it gives one up
// that another was to have. The queue's flush ends that.
func (p *player) deviceFreedUnseen() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Since(p.deviceFreed) < flushed
}

func (p *player) spreadByPolicy(w *workload) bool {
	for _, policy := range p.policies {
		if policy.App == w.app() {
			return true
		}
	}
	return false
}

func (c *view) boundOf(w *workload) (bound int) {
	for i := range c.pods {
		if c.pods[i].Labels[workloadLabel] == w.Name && c.pods[i].Spec.NodeName != "" {
			bound++
		}
	}
	return bound
}

// membersOf names the pods of a workload that do not terminate.
func (c *view) membersOf(w *workload) string {
	var uids []string
	for i := range c.pods {
		if c.pods[i].Labels[workloadLabel] == w.Name && c.pods[i].DeletionTimestamp == nil {
			uids = append(uids, string(c.pods[i].UID))
		}
	}
	slices.Sort(uids)
	return strings.Join(uids, " ")
}

// limit is how long the unit may wait once it fits.
func (u unit) limit(p *player, c *view) time.Duration {
	switch {
	case u.kind == "gang":
		return gangWaits
	case p.collects.Load() && !u.ownsSlot(c):
		return podWaitsBesideCollectors
	}
	return podWaits
}

// victimsLimit is the same for a unit that needs victims.
func (u unit) victimsLimit(p *player) time.Duration {
	if u.kind == "pod" && p.collects.Load() {
		return victimsGo + podWaitsBesideCollectors
	}
	return victimsGo
}

// ownsSlot reports whether a slot is held for the pod where it may be, which no other owner uses.
func (u unit) ownsSlot(c *view) bool {
	return u.owner != nil && slices.ContainsFunc(c.nodes, func(n *viewNode) bool {
		return u.mayBeOn(n) && slices.ContainsFunc(n.held, func(h heldRoom) bool { return h.Name == u.owner.Name && h.slots > 0 && h.cpu >= requestOf(u.pods[0]) })
	})
}

// preempts reports whether victims are looked for. For native gangs kube-scheduler does that behind a feature gate of
// its own, which is off.
func (u unit) preempts() bool { return !u.workload.NeverPreempts && u.workload.Kind != NativeGang }

// fits reports whether the unit fits now; with a priority, as if the pods of a lower one were gone that do not
// terminate.
func (u unit) fits(c *view, above *int32) bool {
	pod := u.pods[0]
	byZone := map[string]int{}
	total := 0
	for _, n := range c.nodes {
		if !u.mayBeOn(n) || u.kind == "pod" && !c.spreads(u.workload, pod, n) {
			continue
		}
		room := n.roomFor(u, above) / requestOf(pod)
		if u.workload.Device != "" {
			room = min(room, max(n.devices, 0)) // a victim's device is not free before the victim has gone
		}
		byZone[n.Zone] += room
		total += room
	}
	if u.workload.Packing == RequiredZone {
		if c.boundOf(u.workload) > 0 {
			return false // only one zone will do
		}
		for _, room := range byZone {
			if room >= u.need {
				return true
			}
		}
		return false
	}
	return total >= u.need
}

func (u unit) own() map[types.UID]bool {
	own := map[types.UID]bool{}
	for _, pod := range u.pods {
		own[pod.UID] = true
	}
	return own
}

// mayBeOn reports whether the node, the pods there and the volume admit the unit's pods.
func (u unit) mayBeOn(n *viewNode) bool {
	volume := u.workload.Volume
	keepsOff := func(there *v1.Pod) bool { return there.UID != u.pods[0].UID && mustBeApart(there, u.pods[0]) }
	return n.takes(u.pods[0]) && !slices.ContainsFunc(n.pods, keepsOff) && (volume == "" || volume == n.Zone || volume == n.Name)
}

// takes reports whether the node's labels, taints and state admit the pod.
func (n *viewNode) takes(pod *v1.Pod) bool {
	return n.usable() && n.Pool == pod.Spec.NodeSelector[poolLabel]
}

// roomFor returns how many CPUs the unit may have on the node; with a priority, as if the pods of a lower one were gone
// that do not terminate. Those in guaranteed slots leave it nothing. Owners that run in their slots alone may have what
// those have, and no victim makes that more.
func (n *viewNode) roomFor(u unit, above *int32) int {
	pod, own, reservation := u.pods[0], u.own(), ""
	if u.owner != nil {
		reservation = u.owner.Name
	}
	free := n.CPU
	for _, other := range n.pods {
		leaves := above != nil && priorityOf(other) < *above && other.DeletionTimestamp == nil && other.Spec.NodeName != ""
		if r, covered := n.covered[other.UID]; covered && r.Name != reservation && priorityOf(pod) <= r.Priority {
			leaves = false
		}
		if !own[other.UID] && !leaves {
			free -= requestOf(other)
		}
	}
	room := max(free-n.heldFrom(priorityOf(pod), reservation), 0)
	if u.owner == nil || !u.owner.Required {
		return room
	}
	inSlots := 0
	for _, h := range n.held {
		if h.Name == reservation {
			inSlots = max(min(h.cpu/requestOf(pod), h.slots), 0) * requestOf(pod)
		}
	}
	return min(room, inSlots)
}

// spreads reports whether the pod's own constraints admit the node. Only the pods that are bound count.
func (c *view) spreads(w *workload, pod *v1.Pod, n *viewNode) bool {
	switch w.Spread {
	case OnePerNode:
		return !slices.ContainsFunc(n.pods, func(other *v1.Pod) bool { return other.Labels["app"] == w.app() && other.UID != pod.UID })
	case OverZones:
		count := map[string]int{}
		for _, other := range c.nodes {
			if other.Pool == pod.Spec.NodeSelector[poolLabel] || pod.Spec.NodeSelector == nil {
				count[other.Zone] += 0
				for _, p := range other.pods {
					if p.Labels["app"] == w.app() && p.UID != pod.UID && p.DeletionTimestamp == nil {
						count[other.Zone]++
					}
				}
			}
		}
		least := math.MaxInt
		for _, sum := range count {
			least = min(least, sum)
		}
		return count[n.Zone]+1-least <= 1
	}
	return true
}
