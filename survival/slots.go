package survival

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/plugins/reservecache/ledger"
)

// maxSlots is how many slots one reservation may have.
const maxSlots = 5000

// slotPlanner finds out how many slots each protected workload needs in each zone. It is arithmetic over where pods
// are; whether what is held is enough is for the certificate to say.
type slotPlanner struct {
	asked *v1alpha1.ZoneSurvival
	nodes map[string]*v1.Node
	zones map[string][]*v1.Node // by name, also those that have no nodes now
	// losable are the zones that may be lost.
	losable  []string
	claims   map[string]*v1.PersistentVolumeClaim // by namespace/name
	volumes  map[string]*v1.PersistentVolume
	policies []*v1alpha1.ZoneSpreadPolicy
	// workloads are sorted by their keys.
	workloads []*heldWorkload
	total     ledger.Resources // what all nodes have
	capped    bool
}

// heldWorkload is a protected workload for which slots are held.
type heldWorkload struct {
	controllerKey
	pods     []*v1.Pod // that run, and would be replaced
	newest   *v1.Pod   // which stands for the template
	settled  bool      // as many pods run as are wanted
	here     map[string]int
	present  []string // zones in which a node lets its pods be
	eligible []string // those, and zones whose nodes may come back, in the order of preference
	weights  map[string]int64
	most     map[string]int // that a policy lets a zone have; absent for any number
	// fixed are pods that no other zone may have, by zone.
	fixed map[string]int

	owners       []v1alpha1.ReservationOwner
	slot         v1alpha1.ReservationSlot
	slotsPerNode *int32
	slots        map[string]int // by zone, those that its pods use among them
}

// newSlotPlanner plans for a cluster. own are the reservations that the ZoneSurvival has, and returning are
// HoldOptions.Zones.
func newSlotPlanner(
	objects []client.Object, asked *v1alpha1.ZoneSurvival, protects func(*v1.Pod) bool,
	own map[string]*v1alpha1.ZoneReservation, returning map[string][]string,
) *slotPlanner {
	p := &slotPlanner{
		asked: asked, nodes: map[string]*v1.Node{}, zones: map[string][]*v1.Node{},
		claims: map[string]*v1.PersistentVolumeClaim{}, volumes: map[string]*v1.PersistentVolume{},
	}
	for name, r := range own {
		for i := range r.Spec.Zones {
			if zone := r.Spec.Zones[i].Name; slices.Contains(returning[name], zone) {
				p.zones[zone] = nil
			}
		}
	}
	var older []*v1alpha1.ZoneReservation
	for _, obj := range objects {
		switch o := obj.(type) {
		case *v1.Node:
			p.nodes[o.Name] = o
			allocatable := ledger.ResourcesOf(o.Status.Allocatable)
			p.total.Add(&allocatable, 1)
			if zone := o.Labels[v1.LabelTopologyZone]; zone != "" {
				p.zones[zone] = append(p.zones[zone], o)
			}
		case *v1.PersistentVolumeClaim:
			p.claims[o.Namespace+"/"+o.Name] = o
		case *v1.PersistentVolume:
			p.volumes[o.Name] = o
		case *v1alpha1.ZoneSpreadPolicy:
			p.policies = append(p.policies, o)
		case *v1alpha1.ZoneReservation:
			if own[o.Name] == nil {
				older = append(older, o)
			}
		}
	}
	slices.SortFunc(p.policies, func(a, b *v1alpha1.ZoneSpreadPolicy) int { return cmp.Compare(a.Name, b.Name) })
	for zone := range p.zones {
		if len(asked.Spec.Survive.ZoneNames) == 0 || slices.Contains(asked.Spec.Survive.ZoneNames, zone) {
			p.losable = append(p.losable, zone)
		}
	}
	slices.Sort(p.losable)
	impaired := NewImpaired(objects)
	served := ownersOfOthers(older, own)
	for _, w := range impaired.workloads(asked, func(pod *v1.Pod) bool { return protects(pod) && !served.selects(pod) }) {
		name := reservationName(asked.Name, w.controllerKey)
		if held := p.newWorkload(w, impaired.controllers, own[name], returning[name]); held != nil {
			p.workloads = append(p.workloads, held)
		}
	}
	left := p.limit()
	for _, w := range p.workloads {
		p.planSlots(w)
		if present := own[reservationName(asked.Name, w.controllerKey)]; present != nil && !w.settled {
			w.keepSlots(present)
		}
		p.applyLimits(w, left)
	}
	return p
}

// ownersOfOthers are the pods that belong to an older reservation than the ZoneSurvival's: these have their own room.
func ownersOfOthers(others []*v1alpha1.ZoneReservation, own map[string]*v1alpha1.ZoneReservation) selection {
	out := selection{}
	for _, r := range others {
		younger := false
		for _, mine := range own {
			younger = younger || cmp.Or(
				mine.CreationTimestamp.Compare(r.CreationTimestamp.Time), strings.Compare(mine.Name, r.Name)) < 0
		}
		for i := range r.Spec.Owners {
			if !younger {
				_ = out.addSelector(r.Spec.Owners[i].Namespace, &r.Spec.Owners[i].PodSelector) // an invalid one owns nothing
			}
		}
	}
	return out
}

// newWorkload returns what is known of a workload before slots are planned, nil if none of its pods would be replaced.
// own is its reservation, nil for none, and returning are that one's HoldOptions.Zones.
func (p *slotPlanner) newWorkload(
	w *workload, controllers map[controllerKey]client.Object, own *v1alpha1.ZoneReservation, returning []string,
) *heldWorkload {
	out := &heldWorkload{
		controllerKey: w.controllerKey, here: map[string]int{}, fixed: map[string]int{}, slots: map[string]int{},
	}
	for _, pod := range w.pods {
		if node := p.nodes[pod.Spec.NodeName]; node != nil && metav1.GetControllerOf(pod) != nil {
			out.pods = append(out.pods, pod)
			out.here[node.Labels[v1.LabelTopologyZone]]++
		}
	}
	if len(out.pods) == 0 {
		return nil
	}
	out.settled = len(out.pods) == len(w.pods) && len(w.pods) == w.replicas
	out.newest = slices.MaxFunc(out.pods, func(a, b *v1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), -compareByName(a, b))
	})
	out.slot, out.slotsPerNode = slotOf(out.pods, out.newest), slotsPerNode(out.newest)
	out.owners = ownersOf(p.asked, controllers[w.controllerKey], out.pods)
	p.findZones(out, func(zone string) bool {
		return own != nil && slices.Contains(returning, zone) && sameNodes(&own.Spec.Slot, &out.slot) &&
			slices.ContainsFunc(own.Spec.Zones, func(z v1alpha1.ReservationZone) bool { return z.Name == zone })
	})
	for _, pod := range out.pods {
		zone := p.nodes[pod.Spec.NodeName].Labels[v1.LabelTopologyZone]
		if !slices.ContainsFunc(out.eligible, func(other string) bool { return other != zone && p.volumesAllow(pod, other) }) {
			out.fixed[zone]++
		}
	}
	return out
}

// boundText says that pods of the workload have no other zone to go to.
func (w *heldWorkload) boundText() string {
	n := 0
	for _, fixed := range w.fixed {
		n += fixed
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%s of %s/%s in namespace %s, which may run in no other zone", plural(n, "pod"), w.kind, w.name, w.namespace)
}

// findZones finds out in which zones the pods of a workload may be, and in which shares a policy divides them. returns
// reports whether a zone counts without a node that lets them run.
func (p *slotPlanner) findZones(w *heldWorkload, returns func(zone string) bool) {
	w.weights, w.most = map[string]int64{}, map[string]int{}
	var policy *v1alpha1.ZoneSpreadPolicySpec
	for _, candidate := range p.policies {
		selected := selection{}
		_ = selected.addSelector(candidate.Namespace, &candidate.Spec.PodSelector) // an invalid one selects nothing
		if selected.selects(w.newest) && cmp.Or(candidate.Spec.TopologyKey, v1.LabelTopologyZone) == v1.LabelTopologyZone {
			policy = &candidate.Spec
			break
		}
	}
	for zone, nodes := range p.zones {
		weight := int64(1)
		if policy != nil {
			weight = int64(ptr.Deref(policy.DefaultWeight, 1))
			for i := range policy.Zones {
				if z := &policy.Zones[i]; z.Name == zone {
					weight = int64(ptr.Deref(z.Weight, int32(weight))) //nolint:gosec // a weight
					if z.MaxPods != nil {
						w.most[zone] = int(*z.MaxPods)
					}
				}
			}
		}
		present := slices.ContainsFunc(nodes, func(node *v1.Node) bool { return mayRunOn(w.newest, node) })
		if present {
			w.present = append(w.present, zone)
		}
		if weight > 0 && (present || returns(zone)) {
			w.weights[zone] = weight
			w.eligible = append(w.eligible, zone)
		}
	}
	slices.Sort(w.present)
	slices.SortFunc(w.eligible, func(a, b string) int {
		return cmp.Or(cmp.Compare(w.weights[b], w.weights[a]), cmp.Compare(a, b))
	})
}

// sameNodes reports whether slots may be on the same nodes, as far as their specs say.
func sameNodes(a, b *v1alpha1.ReservationSlot) bool {
	a, b = a.DeepCopy(), b.DeepCopy()
	a.Requests, b.Requests = nil, nil
	return equality.Semantic.DeepEqual(a, b)
}

// mayRunOn reports whether a pod may be on a node, whatever else is there and whether the node is up.
func mayRunOn(pod *v1.Pod, node *v1.Node) bool {
	if match, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node); err != nil || !match {
		return false
	}
	_, untolerated := corev1.FindMatchingUntoleratedTaint(klog.Background(), node.Spec.Taints, pod.Spec.Tolerations, func(t *v1.Taint) bool {
		return t.Effect != v1.TaintEffectPreferNoSchedule && !strings.HasPrefix(t.Key, "node.kubernetes.io/")
	}, false)
	return !untolerated
}

// volumesAllow reports whether the volumes that a pod has can be attached in a zone.
func (p *slotPlanner) volumesAllow(pod *v1.Pod, zone string) bool {
	for i := range pod.Spec.Volumes {
		source := pod.Spec.Volumes[i].PersistentVolumeClaim
		if source == nil {
			continue
		}
		claim := p.claims[pod.Namespace+"/"+source.ClaimName]
		if claim == nil {
			continue
		}
		volume := p.volumes[claim.Spec.VolumeName]
		if volume == nil || volume.Spec.NodeAffinity == nil || volume.Spec.NodeAffinity.Required == nil {
			continue
		}
		terms, err := nodeaffinity.NewNodeSelector(volume.Spec.NodeAffinity.Required)
		if err != nil {
			continue
		}
		nodes := p.zones[zone]
		if len(nodes) == 0 { // it had nodes, and is known by its name
			nodes = []*v1.Node{{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1.LabelTopologyZone: zone}}}}
		}
		if !slices.ContainsFunc(nodes, terms.Match) {
			return false
		}
	}
	return true
}

// planSlots finds out how many slots a workload needs in each zone.
func (p *slotPlanner) planSlots(w *heldWorkload) {
	if p.asked.Spec.Survive.Nodes != nil {
		p.planForNodes(w)
		return
	}
	fixed := 0
	for _, n := range w.fixed {
		fixed += n
	}
	if fixed == len(w.pods) {
		return
	}
	for _, lost := range p.losable {
		for zone, n := range w.sharesOf(len(w.pods)-w.fixed[lost], lost) {
			w.slots[zone] = max(w.slots[zone], n)
		}
	}
}

// sharesOf divides pods among the zones, but a lost one, by their weights: each is the next pod's zone when it has the
// fewest for its weight.
func (w *heldWorkload) sharesOf(pods int, lost string) map[string]int {
	out := map[string]int{}
	for range pods {
		best := ""
		for _, zone := range w.eligible {
			if most, bounded := w.most[zone]; zone == lost || bounded && out[zone] >= most {
				continue
			}
			// (a+1)/weight(a) < (b+1)/weight(b)
			if best == "" || int64(out[zone]+1)*w.weights[best] < int64(out[best]+1)*w.weights[zone] {
				best = zone
			}
		}
		if best == "" {
			return out
		}
		out[best]++
	}
	return out
}

// planForNodes plans for the loss of any one node: as many free slots as the node with most pods has, so divided over
// nodes that what is lost with a node is not needed. With at most n slots and pods on each node, a node with k of the
// pods has n-k free slots at most, so that n in all leave k elsewhere. Where a hard constraint keeps pods in their
// zone, that is so for each zone by itself.
func (p *slotPlanner) planForNodes(w *heldWorkload) {
	onNode, most := map[string]int{}, map[string]int{}
	largest := 0
	for _, pod := range w.pods {
		onNode[pod.Spec.NodeName]++
		zone := p.nodes[pod.Spec.NodeName].Labels[v1.LabelTopologyZone]
		most[zone] = max(most[zone], onNode[pod.Spec.NodeName])
		largest = max(largest, onNode[pod.Spec.NodeName])
	}
	if w.slotsPerNode == nil {
		w.slotsPerNode = ptr.To(int32(min(largest, maxSlots))) //nolint:gosec // bounded
	}
	if p.keptInZone(w.newest) {
		for zone, n := range most {
			w.slots[zone] = w.here[zone] + n
		}
		return
	}
	maps.Copy(w.slots, w.here)
	delete(w.slots, "")
	for range largest {
		if zone := w.leastLoaded(); zone != "" {
			w.slots[zone]++
		}
	}
}

// leastLoaded returns the zone that has the fewest slots for its weight.
func (w *heldWorkload) leastLoaded() string {
	best := ""
	for _, zone := range w.eligible {
		if best == "" || int64(w.slots[zone]+1)*w.weights[best] < int64(w.slots[best]+1)*w.weights[zone] {
			best = zone
		}
	}
	return best
}

// keptInZone reports whether a hard constraint may let a pod that replaces another one only into that one's zone.
func (p *slotPlanner) keptInZone(pod *v1.Pod) bool {
	for i := range pod.Spec.TopologySpreadConstraints {
		c := &pod.Spec.TopologySpreadConstraints[i]
		if c.TopologyKey == v1.LabelTopologyZone && c.WhenUnsatisfiable == v1.DoNotSchedule {
			return true
		}
	}
	return slices.ContainsFunc(p.policies, func(policy *v1alpha1.ZoneSpreadPolicy) bool {
		selected := selection{}
		_ = selected.addSelector(policy.Namespace, &policy.Spec.PodSelector) // an invalid one selects nothing
		return policy.Spec.WhenUnsatisfiable != v1alpha1.ScheduleAnyway && selected.selects(pod)
	})
}

// keepSlots takes nothing away from what there is: while pods come and go, as in a rolling update, fewer may run for a
// moment.
func (w *heldWorkload) keepSlots(present *v1alpha1.ZoneReservation) {
	for i := range present.Spec.Zones {
		z := &present.Spec.Zones[i]
		w.slots[z.Name] = max(w.slots[z.Name], int(z.Slots))
	}
}

// limit returns the CPU and memory that may be held, nil for all.
func (p *slotPlanner) limit() *ledger.Resources {
	fraction := p.asked.Spec.MaxHeldFraction
	if fraction == nil {
		return nil
	}
	f := fraction.AsApproximateFloat64()
	return &ledger.Resources{MilliCPU: int64(f * float64(p.total.MilliCPU)), Memory: int64(f * float64(p.total.Memory))}
}

// applyLimits takes slots away where there are more than may be, from the zone with most of those that pods do not use,
// and takes the rest off what may be held.
func (p *slotPlanner) applyLimits(w *heldWorkload, left *ledger.Resources) {
	size := ledger.ResourcesOf(w.slot.Requests)
	free := func(zone string) int { return max(0, w.slots[zone]-w.here[zone]) }
	sum, all := int64(0), 0
	for zone, n := range w.slots {
		sum, all = sum+int64(free(zone)), all+n
	}
	fits := sum
	if left != nil {
		if size.MilliCPU > 0 {
			fits = min(fits, left.MilliCPU/size.MilliCPU)
		}
		if size.Memory > 0 {
			fits = min(fits, left.Memory/size.Memory)
		}
	}
	fits = max(0, min(fits, sum-int64(all-maxSlots)))
	for ; sum > fits; sum-- {
		p.capped = true
		most := slices.MaxFunc(slices.Sorted(maps.Keys(w.slots)), func(a, b string) int { return cmp.Compare(free(a), free(b)) })
		w.slots[most]--
	}
	if left != nil {
		size = ledger.Resources{MilliCPU: size.MilliCPU, Memory: size.Memory}
		left.Add(&size, -sum)
	}
}

// slotOf returns the size of the slots of pods, the largest that any of them asks for, and where the newest may be.
func slotOf(pods []*v1.Pod, newest *v1.Pod) v1alpha1.ReservationSlot {
	var most ledger.Resources
	for _, pod := range pods {
		requests := ledger.ResourcesOf(requestsOf(pod))
		most.SetMax(&requests)
	}
	slot := v1alpha1.ReservationSlot{Requests: most.List(), NodeSelector: maps.Clone(newest.Spec.NodeSelector)}
	delete(slot.Requests, v1.ResourcePods)
	if len(slot.Requests) == 0 {
		slot.Requests = v1.ResourceList{v1.ResourceCPU: resource.Quantity{}} // a place for a pod that asks for nothing
	}
	for key, value := range soleAffinity(newest) {
		if slot.NodeSelector == nil {
			slot.NodeSelector = map[string]string{}
		}
		slot.NodeSelector[key] = value
	}
	delete(slot.NodeSelector, v1.LabelTopologyZone) // each zone has its number
	for _, t := range newest.Spec.Tolerations {
		if t.Effect != v1.TaintEffectNoExecute || t.Key != v1.TaintNodeNotReady && t.Key != v1.TaintNodeUnreachable {
			slot.Tolerations = append(slot.Tolerations, t)
		}
	}
	return slot
}

// soleAffinity returns what a pod's required affinity says in a form that a node selector has: one term, in which each
// label has one value.
func soleAffinity(pod *v1.Pod) map[string]string {
	a := pod.Spec.Affinity
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return nil
	}
	terms := a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	if len(terms) != 1 {
		return nil
	}
	out := map[string]string{}
	for _, e := range terms[0].MatchExpressions {
		if e.Operator == v1.NodeSelectorOpIn && len(e.Values) == 1 {
			out[e.Key] = e.Values[0]
		}
	}
	return out
}

// slotsPerNode is 1 for pods that may not share a node.
func slotsPerNode(pod *v1.Pod) *int32 {
	selectsItself := func(selector *metav1.LabelSelector) bool {
		s := selection{}
		return selector != nil && s.addSelector(pod.Namespace, selector) == nil && s.selects(pod)
	}
	if a := pod.Spec.Affinity; a != nil && a.PodAntiAffinity != nil {
		for i := range a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
			t := &a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[i]
			if t.TopologyKey == v1.LabelHostname && selectsItself(t.LabelSelector) {
				return ptr.To[int32](1)
			}
		}
	}
	return nil
}

// ownersOf returns the owners of the slots of a workload: the pods that its controller selects, as far as the
// ZoneSurvival does. Of a controller that does not say what it selects, those are the labels that all its pods have.
func ownersOf(asked *v1alpha1.ZoneSurvival, controller client.Object, pods []*v1.Pod) []v1alpha1.ReservationOwner {
	selector := &metav1.LabelSelector{}
	switch o := controller.(type) {
	case *appsv1.Deployment:
		selector = o.Spec.Selector
	case *appsv1.ReplicaSet:
		selector = o.Spec.Selector
	case *appsv1.StatefulSet:
		selector = o.Spec.Selector
	case *v1.ReplicationController:
		selector.MatchLabels = o.Spec.Selector
	}
	if selector == nil || len(selector.MatchLabels)+len(selector.MatchExpressions) == 0 {
		common := maps.Clone(pods[0].Labels)
		for _, pod := range pods {
			maps.DeleteFunc(common, func(key, value string) bool { return pod.Labels[key] != value })
		}
		selector = &metav1.LabelSelector{MatchLabels: common}
	}
	var out []v1alpha1.ReservationOwner
	for i := range asked.Spec.Workloads {
		entry := &asked.Spec.Workloads[i]
		selected := selection{}
		_ = selected.addSelector(entry.Namespace, &entry.PodSelector) // it is valid
		if !slices.ContainsFunc(pods, selected.selects) {
			continue
		}
		both := selector.DeepCopy()
		for key, value := range entry.PodSelector.MatchLabels {
			if both.MatchLabels == nil {
				both.MatchLabels = map[string]string{}
			}
			both.MatchLabels[key] = value
		}
		for _, e := range entry.PodSelector.MatchExpressions {
			if !slices.ContainsFunc(both.MatchExpressions, func(has metav1.LabelSelectorRequirement) bool {
				return has.Key == e.Key && has.Operator == e.Operator && slices.Equal(has.Values, e.Values)
			}) {
				both.MatchExpressions = append(both.MatchExpressions, e)
			}
		}
		out = append(out, v1alpha1.ReservationOwner{Namespace: entry.Namespace, PodSelector: *both})
	}
	return out
}
