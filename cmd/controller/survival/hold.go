package survival

import (
	"context"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/internal/crd"
	"zonewise.dev/survival"
)

// fieldOwner is the field manager of reservations. It never changes: what another manager has applied would stay in
// them.
const fieldOwner = client.FieldOwner("zonewise-survival")

// zoneReturnsWithin is for how long a zone counts whose nodes were deleted. Its slots wait for it, so that they are
// there when it is back. After that it is taken for given up.
const zoneReturnsWithin = 24 * time.Hour

// reservedZone is a zone of a reservation, both by name.
type reservedZone struct{ reservation, zone string }

// reservedZones returns the zones that count, by reservation.
func (c *Controller) reservedZones(now time.Time) map[string][]string {
	maps.DeleteFunc(c.seen, func(_ reservedZone, at time.Time) bool { return now.Sub(at) > zoneReturnsWithin })
	out := map[string][]string{}
	for key := range c.seen {
		out[key.reservation] = append(out[key.reservation], key.zone)
	}
	return out
}

// noteZones notes which zones have nodes for the pods of reservations.
func (c *Controller) noteZones(zones map[string][]string, now time.Time) {
	for reservation, names := range zones {
		for _, zone := range names {
			c.seen[reservedZone{reservation, zone}] = now
		}
	}
}

// noteReservedZones notes the zones of the reservations that there are at the first look: one of them may have failed
// before. At later looks it does nothing.
func (c *Controller) noteReservedZones(cluster *snapshot.Snapshot) {
	if c.seen != nil {
		return
	}
	c.seen = map[reservedZone]time.Time{}
	for _, r := range snapshot.List[*v1alpha1.ZoneReservation](cluster) {
		if owner := metav1.GetControllerOf(r); owner != nil && owner.Kind == "ZoneSurvival" {
			for i := range r.Spec.Zones {
				c.seen[reservedZone{r.Name, r.Spec.Zones[i].Name}] = cluster.TakenAt
			}
		}
	}
}

// holdRoom makes the reservations of all ZoneSurvivals what they should be, and finds out what there is to be said of
// them. It follows from where pods are, and nothing is replayed for it.
func (r *round) holdRoom(ctx context.Context) {
	now := r.options.Sim.Now
	options := survival.HoldOptions{Now: metav1.Time{Time: now}, Missing: r.options.Missing, Zones: r.reservedZones(now)}
	for _, s := range r.asked {
		if s.DeletionTimestamp != nil {
			continue // the reservations go with it
		}
		said := s.Status.DeepCopy()
		room := survival.Hold(r.objects, s, options, said)
		r.noteZones(room.Zones, now)
		if err := r.writeRoom(ctx, &room); err != nil {
			klog.FromContext(ctx).Error(err, "Cannot write a reservation", "zonesurvival", klog.KObj(s))
			if held := meta.FindStatusCondition(said.Conditions, v1alpha1.ConditionHeld); held != nil {
				held.Status, held.Reason = metav1.ConditionFalse, v1alpha1.ReasonReservationNotWritten
				held.Message = crd.Shortened(err.Error())
			}
		}
		r.rooms[s.UID] = said
	}
}

// writeRoom writes the reservations that have changed, and deletes those that are not wanted. It never touches one that
// belongs to something else.
func (c *Controller) writeRoom(ctx context.Context, room *survival.Room) error {
	for _, wanted := range room.Changed {
		// Without force it is a conflict if another manager has made a reservation of that name meanwhile.
		options := []client.ApplyOption{fieldOwner}
		if wanted.UID != "" {
			options = append(options, client.ForceOwnership)
		}
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(wanted)
		if err != nil {
			return err
		}
		applied := client.ApplyConfigurationFromUnstructured(&unstructured.Unstructured{Object: content})
		if err := c.shared.Client.Apply(ctx, applied, options...); err != nil {
			return err
		}
	}
	for _, unwanted := range room.Unwanted { // after what takes their place
		err := c.shared.Client.Delete(ctx, unwanted, client.Preconditions{UID: &unwanted.UID})
		if client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}
