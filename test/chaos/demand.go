package chaos

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/test/build"
)

const (
	namespace = "chaos"
	appLabel  = "app"
	// fillerClass is the priority class of the fillers, urgentClass of some gangs.
	fillerClass, fillerPriority = "chaos-filler", -10
	urgentClass, urgentPriority = "chaos-urgent", 100
	fillerMilliCPU              = 500
	mostGangs                   = 8
)

// service is a set of pods that are alike.
type service struct {
	name     string
	milliCPU int64
	replicas int
	class    string
	maxSkew  int32  // of a hard constraint over zones; 0: none
	gang     string // whose members they are
	native   bool   // that is a gang of Kubernetes' own API
}

// gang is a PodGroup and its members.
type gang struct {
	service
	size, minMember int
}

// demand is what is asked for. It changes by steps, and knows nothing of the cluster.
type demand struct {
	services     []*service
	gangs        []*gang
	fillers      *service
	percent      int // of the nodes' CPU
	policies     []*v1alpha1.ZoneSpreadPolicy
	reservations []*v1alpha1.ZoneReservation
	made         int
	// restarts and finishes are how many pods of a service are to be replaced and to succeed once.
	restarts, finishes map[string]int
}

// emptyDemand asks for nothing.
func emptyDemand() *demand {
	return &demand{
		fillers:  &service{name: "filler", milliCPU: fillerMilliCPU, class: fillerClass},
		restarts: map[string]int{}, finishes: map[string]int{},
	}
}

func newDemand() *demand {
	d := emptyDemand()
	d.percent = 70
	for i := range 3 {
		d.services = append(d.services, &service{name: fmt.Sprintf("native-%d", i), milliCPU: int64(250 * (i + 1)), replicas: 6, maxSkew: int32(1 + i%2)})
	}
	for i := range 3 {
		d.services = append(d.services, &service{name: fmt.Sprintf("policy-%d", i), milliCPU: int64(250 * (i + 1)), replicas: 6})
	}
	d.policies = []*v1alpha1.ZoneSpreadPolicy{
		newPolicy("policy-0", func(s *v1alpha1.ZoneSpreadPolicySpec) { s.MaxPerZone = ptr.To(intstr.FromInt32(4)) }),
		newPolicy("policy-1", func(s *v1alpha1.ZoneSpreadPolicySpec) {
			s.MaxSkew = 2
			s.Zones = []v1alpha1.ZoneSpreadZone{{Name: "a", Weight: ptr.To[int32](2), MaxPods: ptr.To[int32](6)}, {Name: "b", MaxPods: ptr.To[int32](3)}}
		}),
		newPolicy("policy-2", func(s *v1alpha1.ZoneSpreadPolicySpec) { s.MaxPerZone = ptr.To(intstr.FromInt32(3)) }),
	}
	d.reservations = []*v1alpha1.ZoneReservation{
		newReservation("headroom", "native-0", "500m", v1alpha1.ModeHeadroom, 1),
		newReservation("guarantee", "policy-0", "250m", v1alpha1.ModeGuarantee, 2),
	}
	return d
}

func labelled(app string) metav1.LabelSelector {
	return metav1.LabelSelector{MatchLabels: map[string]string{appLabel: app}}
}

func newPolicy(app string, edit func(*v1alpha1.ZoneSpreadPolicySpec)) *v1alpha1.ZoneSpreadPolicy {
	p := &v1alpha1.ZoneSpreadPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: app}}
	p.Spec.PodSelector, p.Spec.Replicas = labelled(app), ptr.To(intstr.FromInt32(9))
	edit(&p.Spec)
	return p
}

func newReservation(name, owner, cpu string, mode v1alpha1.ReservationMode, slots int32) *v1alpha1.ZoneReservation {
	r := &v1alpha1.ZoneReservation{ObjectMeta: metav1.ObjectMeta{Name: name}}
	r.Spec.Mode = mode
	r.Spec.Owners = []v1alpha1.ReservationOwner{{Namespace: namespace, PodSelector: labelled(owner)}}
	r.Spec.Slot.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse("64Mi")}
	for _, z := range zones {
		r.Spec.Zones = append(r.Spec.Zones, v1alpha1.ReservationZone{Name: z, Slots: slots})
	}
	return r
}

// apply changes the demand by a step.
func (d *demand) apply(s step) {
	switch s.kind {
	case "scale":
		d.services[s.a%len(d.services)].replicas = 2 + s.b%8
	case "roll":
		d.restarts[d.services[s.a%len(d.services)].name] += 1 + s.b%3
	case "finish":
		d.finishes[d.fillers.name] += 1 + s.b%4
	case "burst":
		d.restarts[d.fillers.name] += 3 * schedulerQPS
	case "gang":
		d.addGang(s)
	case "demand":
		d.percent = 60 + s.a%51
	case "reservation":
		r := d.reservations[s.a%len(d.reservations)]
		for i := range r.Spec.Zones {
			r.Spec.Zones[i].Slots = int32(1 + s.b%3)
		}
	case "policy":
		d.policies[0].Spec.MaxPerZone = ptr.To(intstr.FromInt32(int32(3 + s.b%3)))
	default:
		if len(d.gangs) > 0 {
			d.changeGang(s, s.a%len(d.gangs))
		}
	}
}

// addGang adds one. Some are urgent, and some are larger than the cluster.
func (d *demand) addGang(s step) {
	d.made++
	g := &gang{size: 2 + s.a%5}
	g.name = fmt.Sprintf("gang-%d", d.made)
	g.gang, g.milliCPU = g.name, []int64{250, 500, 1000, 2000}[s.b%4]
	switch s.b / 4 % 8 {
	case 0:
		g.size, g.milliCPU = 22, 4000
	case 1, 2:
		g.class = urgentClass
	}
	g.replicas, g.minMember, g.native = g.size, g.size-s.b/32%2, hasNativeGangs && s.b/64%3 == 0
	d.gangs = append(d.gangs, g)
	if len(d.gangs) > mostGangs {
		d.gangs = slices.Delete(d.gangs, 0, 1)
	}
}

func (d *demand) changeGang(s step, i int) {
	g := d.gangs[i]
	switch s.kind {
	case "delete gang":
		d.gangs = slices.Delete(d.gangs, i, i+1)
	case "halve gang":
		g.replicas = g.size / 2
	case "restore gang":
		for _, g := range d.gangs {
			g.replicas = g.size
		}
	case "minMember":
		g.minMember = 1 + s.b%g.size
	}
}

// all are the sets of pods that should exist: fillers are as many as the demand lacks.
func (d *demand) all() []*service {
	out := slices.Clone(d.services)
	var sum int64
	for _, g := range d.gangs {
		out = append(out, &g.service)
	}
	for _, s := range out {
		if s.milliCPU < 4000 { // not a gang that never fits
			sum += s.milliCPU * int64(s.replicas)
		}
	}
	capacity := int64(nodeMilliCPU * nodesPerZone * len(zones))
	d.fillers.replicas = int(max(0, capacity*int64(d.percent)/100-sum) / d.fillers.milliCPU)
	return append(out, d.fillers)
}

// pod makes a pod of a service.
func (s *service) pod(name string) *v1.Pod {
	pod := build.Pod(name, fmt.Sprintf("%dm", s.milliCPU), build.Namespace(namespace), build.App(s.name),
		build.Request(v1.ResourceMemory, "64Mi"), build.Scheduler(schedulerName), build.PriorityClass(s.class))
	if s.gang != "" {
		build.Member(s.gang)(pod)
	}
	if s.native {
		joinNativeGang(pod, s.gang)
	}
	if s.maxSkew > 0 {
		build.Spread(s.name, s.maxSkew, v1.DoNotSchedule)(pod)
	}
	return pod
}

// group makes a gang's PodGroup.
func (g *gang) group() *schedulingv1alpha1.PodGroup {
	return &schedulingv1alpha1.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: g.name},
		Spec:       schedulingv1alpha1.PodGroupSpec{MinMember: int32(g.minMember)},
	}
}
