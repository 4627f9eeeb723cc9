package board

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	schedv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
)

// gpuResource is the devices' extended resource, for the zones' table only.
const gpuResource corev1.ResourceName = "nvidia.com/gpu"

// Build computes the board.
func Build(e Evidence) *Board {
	r := newRecount(pointers(e.Nodes), pointers(e.Pods))
	spreads := measureSpreads(r, e.Deployments)
	services := countServices(r, e, spreads)
	gangs := countGangs(r, e)
	b := &Board{
		Kubernetes: e.Version,
		Zones:      countZones(r),
		Services:   services,
		Spread:     sumSpreads(spreads),
		Gangs:      gangs,
		Ledger:     readLedger(e.Metrics),
		Throughput: measureThroughput(e.Bindings),
	}
	for _, phase := range e.Phases {
		b.Phases = append(b.Phases, measurePhase(phase, e.Bindings))
	}
	b.Checks = judge(r, e, spreads, services, gangs)
	return b
}

func pointers[T any](items []T) []*T {
	out := make([]*T, len(items))
	for i := range items {
		out[i] = &items[i]
	}
	return out
}

func readLedger(m Metrics) Ledger {
	return Ledger{
		Assumed: exported(m.Assumed), CacheAssumed: exported(m.CacheAssumed),
		Pods: exported(m.Pods), Nodes: exported(m.Nodes), Ghosts: exported(m.Ghosts),
		Checks: exported(m.Checks), Drift: exported(m.Drift), Unsettled: exported(m.Unsettled),
	}
}

func exported(value float64) *float64 {
	if math.IsNaN(value) {
		return nil
	}
	return &value
}

func countZones(r *recount) []Zone {
	type sums struct {
		zone                   *Zone
		allocatable, allocated amounts
		closed                 int
	}
	zones := map[string]*sums{}
	for _, n := range r.order {
		s := zones[n.zone]
		if s == nil {
			s = &sums{zone: &Zone{Name: n.zone}, allocatable: amounts{}, allocated: amounts{}}
			zones[n.zone] = s
		}
		s.zone.Nodes++
		s.zone.Pods += len(n.pods)
		for _, p := range n.pods {
			if p.Labels[schedv1alpha1.PodGroupLabel] != "" {
				s.zone.GangPods++
			} else if metav1.GetControllerOf(p) != nil {
				s.zone.ServicePods++
			}
		}
		if n.node.Spec.Unschedulable {
			s.closed++
		}
		s.allocatable.add(n.allocatable)
		s.allocated.add(n.allocated)
	}
	var out []Zone
	for _, name := range slices.Sorted(maps.Keys(zones)) {
		s := zones[name]
		switch {
		case s.closed == 0:
			s.zone.State = Serving
		case s.closed < s.zone.Nodes:
			s.zone.State = Mixed
		case s.zone.Pods > 0:
			s.zone.State = Cordoned
		default:
			s.zone.State = Drained
		}
		share := func(name corev1.ResourceName) *float64 {
			if s.allocatable[name] == 0 {
				return nil
			}
			value := float64(s.allocated[name]) / float64(s.allocatable[name])
			return &value
		}
		s.zone.CPU, s.zone.Memory, s.zone.GPU = share(corev1.ResourceCPU), share(corev1.ResourceMemory), share(gpuResource)
		out = append(out, *s.zone)
	}
	return out
}

// measured is one hard constraint of one Deployment.
type measured struct {
	deployment *appsv1.Deployment
	constraint *corev1.TopologySpreadConstraint
	counts     map[string]int
	skew       int
}

func measureSpreads(r *recount, deployments []appsv1.Deployment) []measured {
	var out []measured
	for i := range deployments {
		d := &deployments[i]
		pod := templatePod(d)
		for j := range pod.Spec.TopologySpreadConstraints {
			c := &pod.Spec.TopologySpreadConstraints[j]
			if c.WhenUnsatisfiable != corev1.DoNotSchedule {
				continue
			}
			counts := r.domains(pod, c)
			out = append(out, measured{d, c, counts, skew(counts, c)})
		}
	}
	return out
}

// templatePod is a pod of the Deployment, as far as constraints look at it.
func templatePod(d *appsv1.Deployment) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Labels: d.Spec.Template.Labels},
		Spec:       d.Spec.Template.Spec,
	}
}

func sumSpreads(spreads []measured) Spread {
	var s Spread
	for _, m := range spreads {
		if m.constraint.TopologyKey != corev1.LabelTopologyZone {
			continue
		}
		s.Deployments++
		for len(s.BySkew) <= m.skew {
			s.BySkew = append(s.BySkew, 0)
		}
		s.BySkew[m.skew]++
		s.Worst = max(s.Worst, m.skew)
	}
	return s
}

func countServices(r *recount, e Evidence, spreads []measured) []Service {
	services := map[string]*Service{}
	service := func(d *appsv1.Deployment) *Service {
		name := cmp.Or(d.Labels[e.AppLabel], d.Name)
		if services[name] == nil {
			services[name] = &Service{Name: name, Zones: map[string]int{}}
		}
		return services[name]
	}
	selectors := map[string][]selected{} // namespace -> Deployments
	for i := range e.Deployments {
		d := &e.Deployments[i]
		s := service(d)
		if d.Spec.Replicas != nil {
			s.Desired += int(*d.Spec.Replicas)
		}
		if selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector); err == nil {
			selectors[d.Namespace] = append(selectors[d.Namespace], selected{selector, s})
		}
	}
	each := func(pod *corev1.Pod, count func(*Service)) {
		for _, sel := range selectors[pod.Namespace] {
			if pod.DeletionTimestamp == nil && sel.selector.Matches(labels.Set(pod.Labels)) {
				count(sel.service)
			}
		}
	}
	for _, n := range r.order {
		for _, pod := range n.pods {
			each(pod, func(s *Service) { s.Bound++; s.Zones[n.zone]++ })
		}
	}
	for _, pod := range r.pending {
		each(pod, func(s *Service) {
			s.Waiting++
			s.Reason = cmp.Or(s.Reason, unscheduledReason(pod))
		})
	}
	for _, m := range spreads {
		if m.constraint.TopologyKey == corev1.LabelTopologyZone {
			s := service(m.deployment)
			if m.skew >= s.Skew {
				s.Skew, s.MaxSkew = m.skew, int(m.constraint.MaxSkew)
			}
		}
	}
	out := make([]Service, 0, len(services))
	for _, s := range services {
		out = append(out, *s)
	}
	slices.SortFunc(out, func(a, b Service) int {
		return cmp.Or(cmp.Compare(b.Desired, a.Desired), cmp.Compare(len(a.Name), len(b.Name)), cmp.Compare(a.Name, b.Name))
	})
	return out
}

type selected struct {
	selector labels.Selector
	service  *Service
}

func countGangs(r *recount, e Evidence) []Gang {
	type key struct{ namespace, name string }
	gangs := map[key]*Gang{}
	for i := range e.PodGroups {
		g := &e.PodGroups[i]
		gangs[key{g.Namespace, g.Name}] = &Gang{Name: g.Name, MinMember: int(g.Spec.MinMember), Zones: map[string]int{}}
	}
	member := func(pod *corev1.Pod) *Gang {
		g := gangs[key{pod.Namespace, pod.Labels[schedv1alpha1.PodGroupLabel]}]
		if g != nil && pod.DeletionTimestamp == nil {
			g.Members++
			return g
		}
		return nil
	}
	for _, n := range r.order {
		for _, pod := range n.pods {
			if g := member(pod); g != nil {
				g.Bound++
				g.Zones[n.zone]++
			}
		}
	}
	for _, pod := range r.pending {
		if g := member(pod); g != nil && g.Reason == "" {
			g.Reason = unscheduledReason(pod)
		}
	}
	out := make([]Gang, 0, len(gangs))
	for _, g := range gangs {
		switch {
		case g.Bound >= g.MinMember:
			g.State, g.Reason = Whole, ""
		case g.Bound == 0:
			g.State = Waits
		case e.MostBound[g.Name] >= g.MinMember:
			g.State = Reduced
		default:
			g.State = Partial
		}
		out = append(out, *g)
	}
	slices.SortFunc(out, func(a, b Gang) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// unscheduledReason is what the scheduler wrote on the pod.
func unscheduledReason(pod *corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return c.Message
		}
	}
	return ""
}

func measureThroughput(bindings []Binding) Throughput {
	waits := make([]time.Duration, 0, len(bindings))
	for _, b := range bindings {
		if !b.Bound.IsZero() {
			waits = append(waits, b.Bound.Sub(b.Created))
		}
	}
	slices.Sort(waits)
	return Throughput{Bound: len(waits), Median: quantile(waits, 0.5), P99: quantile(waits, 0.99)}
}

// quantile is the nearest-rank quantile of sorted values.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(math.Ceil(q * float64(len(sorted))))
	return sorted[max(rank, 1)-1]
}

func measurePhase(phase Phase, bindings []Binding) Timing {
	t := Timing{Name: phase.Name, Duration: phase.End.Sub(phase.Start)}
	var last time.Time
	seconds := map[int]int{}
	for _, b := range bindings {
		if b.Bound.IsZero() || b.Bound.Before(phase.Start) || !b.Bound.Before(phase.End) {
			continue
		}
		t.Bound++
		if b.Bound.After(last) {
			last = b.Bound
		}
		second := int(b.Bound.Sub(phase.Start) / time.Second)
		seconds[second]++
		t.Peak = max(t.Peak, seconds[second])
	}
	if span := last.Sub(phase.Start).Seconds(); t.Bound > 0 && span > 0 {
		t.PerSecond = float64(t.Bound) / span
	}
	return t
}
