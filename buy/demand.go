package buy

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/internal/amount"
	"zonewise.dev/internal/nodes"
	"zonewise.dev/internal/pods"
)

// PlacedWithin is how long a pod counts as about to be placed, from its creation. One that waits longer waits for
// something else.
const PlacedWithin = 5 * time.Minute

// Cluster is what of a cluster decides what is wanted.
type Cluster struct {
	Now   time.Time
	Nodes []*v1.Node
	Pods  []*v1.Pod
}

// Demand is what an object wants of an autoscaler. The zero value of a field is what most objects have.
type Demand struct {
	// Owner is the object, and Buy its spec.buy.
	Owner metav1.OwnerReference
	Buy   v1alpha1.Buy
	// Wants are by zone and shape, each of them once.
	Wants []Want
	// Placing is that of wants which have none of their own.
	Placing
	// Waiting is how many of the owner's pods are about to be placed.
	Waiting int
	// Lost are the zones with nodes none of which is usable. No more is asked for there.
	Lost []string
	// Frozen says why no more is asked for at all; empty if it may be.
	Frozen string
}

// Placing says on which nodes pods may be.
type Placing struct {
	// NodeSelector, Affinity and Tolerations are those of the pods for which the room is.
	NodeSelector map[string]string
	Affinity     *v1.NodeSelector
	Tolerations  []v1.Toleration
	// PerNode is how many of the pods may share a node; 0 is any number. If it is 1, pods that Apart selects may not be
	// there either.
	PerNode int32
	Apart   []v1.PodAffinityTerm
}

// Want is room for pods of one shape in one zone, or in any if Zone is empty.
type Want struct {
	Zone     string
	Requests v1.ResourceList
	// Placing is nil for that of the demand.
	Placing *Placing
	// Pods is how many pods' room is wanted, and Used how many of the promised pods have theirs: both together are what
	// is promised.
	Pods, Used int32
}

// ReservationDemand returns what a reservation of slots with spec.buy wants.
func ReservationDemand(r *v1alpha1.ZoneReservation, cluster *Cluster) *Demand {
	slot := &r.Spec.Slot
	d := newDemand("ZoneReservation", r, r.Spec.Buy)
	d.NodeSelector, d.Tolerations, d.PerNode = slot.NodeSelector, slot.Tolerations, valueOf(r.Spec.SlotsPerNode)
	selected := selection{}
	for i := range r.Spec.Owners {
		owner := &r.Spec.Owners[i]
		selected.add(owner.Namespace, &owner.PodSelector)
		if d.PerNode == 1 {
			d.Apart = append(d.Apart, v1.PodAffinityTerm{
				TopologyKey: v1.LabelHostname, Namespaces: []string{owner.Namespace},
				LabelSelector: owner.PodSelector.DeepCopy(),
			})
		}
	}
	d.Waiting = selected.waiting(cluster)
	d.Lost = lostZones(cluster.Nodes)
	switch accepted := meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionAccepted); {
	case accepted != nil && accepted.Status == metav1.ConditionFalse:
		d.Frozen = "the spec is invalid: " + accepted.Message
		return d
	case len(d.Lost) > 0 && len(r.Spec.Zones) == 0:
		d.Frozen = lostInWords(d.Lost)
	}
	used := map[string]int64{}
	slots := map[string]int64{} // by zone
	for i := range r.Status.Zones {
		zone := &r.Status.Zones[i]
		used[zone.Name] = zone.Used
		if len(r.Spec.Zones) == 0 {
			slots[zone.Name] = zone.Desired
		}
	}
	// What the status desires of a zone is what is held there for now: of a zone that never had a node nothing.
	for i := range r.Spec.Zones {
		slots[r.Spec.Zones[i].Name] = int64(r.Spec.Zones[i].Slots)
	}
	if len(slots) == 0 {
		slots[""] = int64(valueOf(r.Spec.Slots))
	}
	for _, zone := range slices.Sorted(maps.Keys(slots)) {
		if only, fixed := slot.NodeSelector[v1.LabelTopologyZone]; fixed && zone != "" && zone != only {
			continue
		}
		d.want(zone, slot.Requests, nil, slots[zone], used[zone])
	}
	return d
}

// SurvivalDemand returns what a ZoneSurvival with spec.hold and spec.buy wants: what its reservations do, each for pods
// of its own shape.
func SurvivalDemand(s *v1alpha1.ZoneSurvival, reservations []*v1alpha1.ZoneReservation, cluster *Cluster) *Demand {
	d := newDemand("ZoneSurvival", s, s.Spec.Buy)
	selected := selection{}
	for i := range s.Spec.Workloads {
		selected.add(s.Spec.Workloads[i].Namespace, &s.Spec.Workloads[i].PodSelector)
	}
	d.Waiting = selected.waiting(cluster)
	d.Lost = lostZones(cluster.Nodes)
	switch found := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionHeld); {
	case len(d.Lost) > 0:
		d.Frozen = lostInWords(d.Lost)
	case found == nil:
		d.Frozen = "it is not known yet what is missing"
	case found.Status == metav1.ConditionUnknown:
		d.Frozen = "it is not known what is missing: " + found.Message
	}
	for _, r := range reservations {
		r = r.DeepCopy()
		r.Spec.Buy = s.Spec.Buy
		of := ReservationDemand(r, cluster)
		placing := of.Placing
		placing.Affinity = requiredAffinity(r, cluster.Pods)
		for _, w := range of.Wants {
			d.want(w.Zone, w.Requests, &placing, int64(w.Pods)+int64(w.Used), int64(w.Used))
		}
	}
	slices.SortFunc(d.Wants, func(a, b Want) int {
		return cmp.Or(strings.Compare(a.Zone, b.Zone), strings.Compare(
			shapeKey(a.Requests, a.Placing), shapeKey(b.Requests, b.Placing)))
	})
	return d
}

// requiredAffinity returns the required node affinity of the newest owner of a reservation, nil if it has none.
func requiredAffinity(r *v1alpha1.ZoneReservation, all []*v1.Pod) *v1.NodeSelector {
	selected := selection{}
	for i := range r.Spec.Owners {
		selected.add(r.Spec.Owners[i].Namespace, &r.Spec.Owners[i].PodSelector)
	}
	var newest *v1.Pod
	for _, pod := range all {
		if pods.Live(pod) && selected.has(pod) && (newest == nil || newest.CreationTimestamp.Before(&pod.CreationTimestamp)) {
			newest = pod
		}
	}
	if newest == nil || newest.Spec.Affinity == nil || newest.Spec.Affinity.NodeAffinity == nil {
		return nil
	}
	return newest.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
}

func newDemand(kind string, obj metav1.Object, spec *v1alpha1.Buy) *Demand {
	return &Demand{Buy: *spec.DeepCopy(), Owner: metav1.OwnerReference{
		APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: kind, Name: obj.GetName(), UID: obj.GetUID(),
		Controller: new(true),
	}}
}

func valueOf(n *int32) int32 {
	if n == nil {
		return 0
	}
	return *n
}

// want adds room for pods that was promised, and of which some is used.
func (d *Demand) want(zone string, requests v1.ResourceList, placing *Placing, promised, used int64) {
	if promised <= 0 {
		return
	}
	used = min(used, promised)
	added := Want{Zone: zone, Requests: withoutZero(requests), Placing: placing, Pods: int32(promised - used), Used: int32(used)} //nolint:gosec // slots
	key := shapeKey(requests, placing)
	for i := range d.Wants {
		if w := &d.Wants[i]; w.Zone == zone && shapeKey(w.Requests, w.Placing) == key {
			w.Pods, w.Used = w.Pods+added.Pods, w.Used+added.Used
			return
		}
	}
	d.Wants = append(d.Wants, added)
}

// shapeKey is equal for pods that are equal to an autoscaler, but for their zone.
func shapeKey(requests v1.ResourceList, placing *Placing) string {
	key := sizeKey(requests)
	if placing != nil {
		data, _ := json.Marshal(placing) // plain data, and maps are sorted
		key += "\x00" + string(data)
	}
	return key
}

// sizeKey is equal for equal requests, however their quantities are written.
func sizeKey(requests v1.ResourceList) string {
	var out []string
	for name, quantity := range requests {
		if !quantity.IsZero() {
			out = append(out, fmt.Sprintf("%s=%d", name, amount.Of(name, quantity)))
		}
	}
	slices.Sort(out)
	return strings.Join(out, ",")
}

func withoutZero(requests v1.ResourceList) v1.ResourceList {
	out := v1.ResourceList{}
	for name, quantity := range requests {
		if !quantity.IsZero() {
			out[name] = quantity
		}
	}
	return out
}

// lostZones returns the zones that have nodes, none of which is ready and not cordoned. A zone without nodes is not
// lost: it may have been scaled to zero, or never had one.
func lostZones(all []*v1.Node) []string {
	usable := map[string]bool{}
	for _, node := range all {
		if zone := node.Labels[v1.LabelTopologyZone]; zone != "" {
			usable[zone] = usable[zone] || nodes.Usable(node)
		}
	}
	var out []string
	for zone, hasUsable := range usable {
		if !hasUsable {
			out = append(out, zone)
		}
	}
	slices.Sort(out)
	return out
}

func lostInWords(zones []string) string {
	return "no node is ready and not cordoned in zone " + strings.Join(zones, ", ")
}

// selection selects pods by namespace.
type selection map[string][]labels.Selector

// add selects more pods; an invalid selector selects none.
func (s selection) add(namespace string, selector *metav1.LabelSelector) {
	if valid, err := metav1.LabelSelectorAsSelector(selector); err == nil {
		s[namespace] = append(s[namespace], valid)
	}
}

func (s selection) has(pod *v1.Pod) bool {
	return slices.ContainsFunc(s[pod.Namespace], func(selector labels.Selector) bool {
		return selector.Matches(labels.Set(pod.Labels))
	})
}

// waiting counts the selected pods that are about to be placed.
func (s selection) waiting(cluster *Cluster) int {
	n := 0
	for _, pod := range cluster.Pods {
		if pod.Spec.NodeName == "" && len(pod.Spec.SchedulingGates) == 0 && pods.Live(pod) &&
			cluster.Now.Sub(pod.CreationTimestamp.Time) < PlacedWithin && s.has(pod) {
			n++
		}
	}
	return n
}
