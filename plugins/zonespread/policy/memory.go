package policy

import (
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"zonewise.dev/apis/v1alpha1"
)

// restoreZone reads what exportZone wrote.
func restoreZone(status *v1alpha1.ZoneStatus) *zoneMemory {
	z := &zoneMemory{hadNodes: status.State != v1alpha1.ZoneEmpty && status.State != ""}
	f := status.Failover
	if f == nil {
		return z
	}
	z.lost = f.LastNodeLost
	z.unreadySince = fromTime(f.UnreadySince)
	z.recoveringSince = fromTime(f.RecoveringSince)
	for i := range f.Shapes {
		if z.shapes == nil {
			z.shapes = map[string]*shapeMemory{}
		}
		z.shapes[f.Shapes[i].Shape] = &shapeMemory{
			refusedSince:    fromTime(f.Shapes[i].RefusedSince),
			lastRefused:     fromTime(f.Shapes[i].LastRefused),
			recoveringSince: fromTime(f.Shapes[i].RecoveringSince),
		}
	}
	return z
}

// Export returns the zones with state and memory, by name; Pods and Desired are left for Status. A Machine that
// is made from it gives the same answers.
func (m *Machine) Export(now time.Time) []v1alpha1.ZoneStatus {
	zones := make([]v1alpha1.ZoneStatus, 0, len(m.zones))
	for _, name := range m.names() {
		z := m.zones[name]
		state, since := m.state(z, now)
		status := v1alpha1.ZoneStatus{Name: name, State: state, Since: since.toTime()}
		f := v1alpha1.ZoneFailover{
			UnreadySince:    z.unreadySince.toTime(),
			LastNodeLost:    z.lost,
			RecoveringSince: z.recoveringSince.toTime(),
		}
		for _, shape := range slices.Sorted(maps.Keys(z.shapes)) {
			s := z.shapes[shape]
			f.Shapes = append(f.Shapes, v1alpha1.ZoneShape{
				Shape:           shape,
				RefusedSince:    s.refusedSince.toTime(),
				LastRefused:     s.lastRefused.toTime(),
				RecoveringSince: s.recoveringSince.toTime(),
			})
		}
		if f.UnreadySince != nil || f.LastNodeLost || f.RecoveringSince != nil || len(f.Shapes) > 0 {
			status.Failover = &f
		}
		zones = append(zones, status)
	}
	return zones
}

// state is the zone's state as users see it, the worst over the kinds of pods, and since when.
func (m *Machine) state(z *zoneMemory, now time.Time) (v1alpha1.ZoneState, seconds) {
	if m.down(z, now) {
		return v1alpha1.ZoneDown, z.unreadySince
	}
	var full, recovering seconds
	if m.recovering(z.recoveringSince, now) {
		recovering = z.recoveringSince
	}
	for _, s := range z.shapes {
		if m.full(s, now) && (!full.set() || s.refusedSince < full) {
			full = s.refusedSince
		}
		if m.recovering(s.recoveringSince, now) && (!recovering.set() || s.recoveringSince < recovering) {
			recovering = s.recoveringSince
		}
	}
	switch {
	case full.set():
		return v1alpha1.ZoneFull, full
	case recovering.set():
		return v1alpha1.ZoneRecovering, recovering
	case !z.hadNodes:
		return v1alpha1.ZoneEmpty, 0
	}
	return v1alpha1.ZoneAvailable, 0
}

func fromTime(t *metav1.Time) seconds {
	if t == nil || t.IsZero() {
		return 0
	}
	return seconds(t.Unix())
}

func (s seconds) toTime() *metav1.Time {
	if !s.set() {
		return nil
	}
	t := metav1.NewTime(s.time())
	return &t
}
