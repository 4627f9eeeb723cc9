package survival

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/internal/crd"
	"zonewise.dev/survival"
)

// fieldOwner is the field manager of reservations. It never changes: what another manager has applied would stay in
// them.
const fieldOwner = client.FieldOwner("zonewise-survival")

// hold makes the reservation of a ZoneSurvival what it should be, and puts into a status what that is. It reports
// whether the reservation is written; an error is that of ctx.
func (c *Controller) hold(
	ctx context.Context, objects []client.Object, asked *v1alpha1.ZoneSurvival, options survival.Options,
	status *v1alpha1.ZoneSurvivalStatus,
) (written bool, err error) {
	if asked.DeletionTimestamp != nil {
		return true, nil // the reservation goes with it
	}
	room, err := survival.Hold(ctx, objects, asked, options, status)
	if err != nil {
		return false, err
	}
	if err := c.keep(ctx, &room); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot write the reservation", "zonesurvival", klog.KObj(asked))
		if held := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionHeld); held != nil {
			held.Status, held.Reason = metav1.ConditionFalse, v1alpha1.ReasonReservationNotWritten
			held.Message = crd.Shortened(err.Error())
		}
		return false, nil
	}
	return true, nil
}

// keep writes or deletes the reservation if it is not as it should be. It never touches one that belongs to something
// else.
func (c *Controller) keep(ctx context.Context, room *survival.Room) error {
	present, wanted := room.Present, room.Wanted
	if room.Same() {
		return nil
	}
	if wanted == nil {
		return client.IgnoreNotFound(c.shared.Client.Delete(ctx, present, client.Preconditions{UID: &present.UID}))
	}
	// Without force it is a conflict if another manager has made a reservation of that name meanwhile.
	options := []client.ApplyOption{fieldOwner}
	if present != nil {
		wanted.UID = present.UID
		options = append(options, client.ForceOwnership)
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(wanted)
	if err != nil {
		return err
	}
	return c.shared.Client.Apply(
		ctx, client.ApplyConfigurationFromUnstructured(&unstructured.Unstructured{Object: content}), options...,
	)
}
