package worlds

import (
	"cmp"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/test/crdtest"
)

// checkDecision checks what must be true of a pod that has just been given a node, by the NodeInfos of its own cycle:
// so it counts what the scheduler could see, however late events are, and however many pods are not bound yet.
func (p *player) checkDecision(nodes []fwk.NodeInfo, pod *v1.Pod, node string) {
	if pod.Spec.SchedulingGroup == nil { // the members of a native gang have been decided about together
		p.checkSpread(nodes, pod, node)
	}
	p.checkKept(nodes, pod, node)
}

// checkSpread: no hard constraint of the pod over zones is broken, by a recount of the pods.
func (p *player) checkSpread(nodes []fwk.NodeInfo, pod *v1.Pod, node string) {
	for _, constraint := range pod.Spec.TopologySpreadConstraints {
		if constraint.TopologyKey != v1.LabelTopologyZone || constraint.WhenUnsatisfiable != v1.DoNotSchedule {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(constraint.LabelSelector)
		if err != nil {
			panic("worlds: " + err.Error())
		}
		counts, zone, least := map[string]int{}, "", -1
		for _, info := range nodes {
			if !labels.SelectorFromSet(pod.Spec.NodeSelector).Matches(labels.Set(info.Node().Labels)) {
				continue
			}
			at := info.Node().Labels[v1.LabelTopologyZone]
			counts[at] += 0
			if info.Node().Name == node {
				zone = at
			}
			for _, there := range info.GetPods() {
				other := there.GetPod()
				if other.UID != pod.UID && other.DeletionTimestamp == nil && selector.Matches(labels.Set(other.Labels)) {
					counts[at]++
				}
			}
		}
		for _, n := range counts {
			if least < 0 || n < least {
				least = n
			}
		}
		if counts[zone]+1-least > int(constraint.MaxSkew) {
			p.fail(SpreadHolds, "pod %s was given %s in zone %s, where its app had %d pods, and %d in another", pod.Name, node, zone, counts[zone], least)
		}
	}
}

// keptSlots are unused slots of a reservation, of so many CPUs each, as its status lists them.
type keptSlots struct {
	name  string
	cpu   int
	zones []string // none for all
	slots int
	on    map[string]int // CPUs by node
}

// reservationLag is how old what a status lists may be while owners and pods that outrank it come and go; changed nodes
// and reservations take longer.
const reservationLag = 3 * time.Second

// checkKept: a pod that may not use the slots of some reservations leaves room for as many of them as are held. Which
// nodes have them is the scheduler's choice: so this counts what the claim's zones have room for, and only where all
// lay where the statuses say before the pod came.
func (p *player) checkKept(nodes []fwk.NodeInfo, pod *v1.Pod, node string) {
	p.mu.Lock()
	stirred := time.Since(p.stirred) < statusDelay+reservationLag
	p.mu.Unlock()
	if stirred {
		return
	}
	free, zoneOf := map[string]int{}, map[string]string{}
	for _, info := range nodes {
		if n := info.Node(); mayHaveSlots(n) {
			free[n.Name], zoneOf[n.Name] = freeOf(info, pod), n.Labels[v1.LabelTopologyZone]
		}
	}
	kept := p.keptFrom(nodes, pod)
	for name, left := range free {
		for i := range kept {
			left -= kept[i].on[name]
		}
		if left < 0 {
			return // the statuses are not up to date
		}
	}
	if _, known := free[node]; known {
		free[node] -= requestOf(pod)
	}
	for i := range kept {
		k := &kept[i]
		need, room := 0, 0
		for j := range kept {
			if other := &kept[j]; other.cpu >= k.cpu && other.within(k) {
				need += other.slots
			}
		}
		for name, left := range free {
			if len(k.zones) == 0 || slices.Contains(k.zones, zoneOf[name]) {
				room += max(left, 0) / k.cpu
			}
		}
		if need > room {
			p.fail(HeldRoomIsKept, "pod %s of priority %d was given %s: that leaves room for %d slots of %d CPUs where %s and others hold %d", pod.Name, priorityOf(pod), node, room, k.cpu, k.name, need)
			return
		}
	}
}

// within reports whether all slots lie in zones that have the other's.
func (k *keptSlots) within(other *keptSlots) bool {
	return len(other.zones) == 0 || len(k.zones) > 0 && !slices.ContainsFunc(k.zones, func(zone string) bool { return !slices.Contains(other.zones, zone) })
}

// mayHaveSlots reports whether a node is open to slots without tolerations.
func mayHaveSlots(n *v1.Node) bool {
	ready := slices.ContainsFunc(n.Status.Conditions, func(c v1.NodeCondition) bool { return c.Type == v1.NodeReady && c.Status == v1.ConditionTrue })
	return ready && !n.Spec.Unschedulable && len(n.Spec.Taints) == 0
}

// keptFrom returns the slots that a pod may not use. Reservations whose slots may not be as their statuses say are left
// out: those that are being edited, and those of which an owner, or a pod that outranks them, has got or lost a node
// just now.
func (p *player) keptFrom(nodes []fwk.NodeInfo, pod *v1.Pod) (kept []keptSlots) {
	reservations := crdtest.All(p.custom, &v1alpha1.ZoneReservation{})
	owner := ownerAmong(reservations, pod)
	for _, r := range reservations {
		if r == owner || *r.Spec.Priority < priorityOf(pod) || r.Status.ObservedGeneration != r.Generation || len(r.Status.Former) > 0 || p.movedJustNow(reservations, r) {
			continue
		}
		k := keptSlots{name: r.Name, cpu: int(r.Status.Requests.Cpu().Value()), on: map[string]int{}}
		for _, zone := range r.Spec.Zones {
			k.zones = append(k.zones, zone.Name)
		}
		for _, zone := range r.Status.Zones {
			for _, at := range zone.Nodes {
				k.on[at.Name] += int(at.Slots) * k.cpu
			}
			if len(k.zones) > 0 && len(zone.Nodes) > 0 { // also those that an edit has left
				k.zones = append(k.zones, zone.Name)
			}
		}
		inclusive, used := r.Spec.Mode == v1alpha1.ModeGuarantee || r.Spec.OwnerPolicy == v1alpha1.OwnerRequired, map[string]int{}
		for _, info := range nodes {
			owned, owners := 0, 0
			for _, there := range info.GetPods() {
				if inclusive && ownerAmong(reservations, there.GetPod()) == r {
					owned += requestOf(there.GetPod())
					owners++
				}
			}
			k.on[info.Node().Name] -= owned
			used[info.Node().Labels[v1.LabelTopologyZone]] += max((owned+k.cpu-1)/max(k.cpu, 1), owners) // a slot is for one
		}
		for name, held := range k.on {
			k.on[name] = max(held, 0)
			k.slots += k.on[name] / max(k.cpu, 1)
		}
		if inclusive { // an owner beside the slots of its zone counts for one that another owner has just left
			unused := 0
			for _, zone := range r.Status.Zones {
				unused += max(int(zone.Desired)-used[zone.Name], 0)
			}
			k.slots = min(k.slots, unused)
		}
		if k.slots > 0 {
			kept = append(kept, k)
		}
	}
	return kept
}

// movedJustNow reports whether an owner of a reservation or a pod that outranks it has been given a node, an owner has
// left its node, or any pod has lost the one that it was given, just now.
func (p *player) movedJustNow(reservations []*v1alpha1.ZoneReservation, r *v1alpha1.ZoneReservation) bool {
	p.mu.Lock()
	unreserved, ended := p.unreservedAt, p.endedAt[r.Spec.Owners[0].PodSelector.MatchLabels["app"]]
	p.mu.Unlock()
	if time.Since(unreserved) < reservationLag || time.Since(ended) < reservationLag {
		return true
	}
	for _, given := range p.decisionsSoFar() {
		if time.Since(given.at) < reservationLag && (priorityOf(given.pod) > *r.Spec.Priority || ownerAmong(reservations, given.pod) == r) {
			return true
		}
	}
	return false
}

// ownerAmong returns the reservation that a pod belongs to, the oldest that selects it; nil without one.
func ownerAmong(reservations []*v1alpha1.ZoneReservation, pod *v1.Pod) (owner *v1alpha1.ZoneReservation) {
	for _, r := range reservations {
		if r.Spec.Owners[0].PodSelector.MatchLabels["app"] != pod.Labels["app"] {
			continue
		}
		if owner == nil || cmp.Or(r.CreationTimestamp.Compare(owner.CreationTimestamp.Time), strings.Compare(r.Name, owner.Name)) < 0 {
			owner = r
		}
	}
	return owner
}
