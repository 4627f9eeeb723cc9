package sim

import (
	"context"
	"errors"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/storage/volume"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// createClaims does the ephemeral volume controller's part: a pod's own claims come after it. The API server gives them
// the default class.
func (x *comparison) createClaims(pod *v1.Pod) {
	x.Helper()
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.Ephemeral == nil {
			continue
		}
		claim := &v1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: pod.Namespace, Name: pod.Name + "-" + v.Name,
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(pod, v1.SchemeGroupVersion.WithKind("Pod"))},
			},
			Spec: *v.Ephemeral.VolumeClaimTemplate.Spec.DeepCopy(),
		}
		require.NoError(x, x.Create(x.Context(), claim))
		require.Equal(x, defaultClass, *claim.Spec.StorageClassName)
	}
}

// startProvisioner does the provisioner's and the volume controller's part, until the test ends: a claim for which a
// node is chosen gets a volume in the node's zone.
func (x *comparison) startProvisioner() {
	ctx, cancel := context.WithCancel(x.Context())
	done := make(chan error, 1)
	go func() {
		for {
			err := x.provision(ctx)
			if err != nil && ctx.Err() == nil {
				done <- err
				return
			}
			select {
			case <-ctx.Done():
				done <- nil
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	x.Cleanup(func() {
		cancel()
		require.NoError(x, <-done)
	})
}

func (x *comparison) provision(ctx context.Context) error {
	claims := &v1.PersistentVolumeClaimList{}
	if err := x.List(ctx, claims, client.InNamespace(x.cluster.name)); err != nil {
		return err
	}
	for i := range claims.Items {
		claim := &claims.Items[i]
		name := claim.Annotations[volume.AnnSelectedNode]
		if name == "" || claim.Spec.VolumeName != "" || claim.DeletionTimestamp != nil {
			continue
		}
		node := &v1.Node{}
		if err := x.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
			if apierrors.IsNotFound(err) {
				continue
			}
			return err
		}
		pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-" + string(claim.UID)}, Spec: v1.PersistentVolumeSpec{
			StorageClassName: defaultClass, AccessModes: claim.Spec.AccessModes, Capacity: claim.Spec.Resources.Requests,
			ClaimRef:               &v1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID},
			PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: "default.example.com", VolumeHandle: claim.Name}},
			NodeAffinity: &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
				MatchExpressions: []v1.NodeSelectorRequirement{{Key: v1.LabelTopologyZone, Operator: v1.NodeSelectorOpIn, Values: []string{node.Labels[v1.LabelTopologyZone]}}},
			}}}},
		}}
		if err := x.Create(ctx, pv); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
		if err := x.Get(ctx, client.ObjectKey{Name: pv.Name}, pv); err != nil {
			return err
		}
		pv.Status.Phase = v1.VolumeBound
		claim.Spec.VolumeName = pv.Name
		metav1.SetMetaDataAnnotation(&claim.ObjectMeta, volume.AnnBindCompleted, "yes")
		err := errors.Join(x.Status().Update(ctx, pv), x.Update(ctx, claim))
		if err == nil {
			claim.Status.Phase = v1.ClaimBound
			err = x.Status().Update(ctx, claim)
		}
		if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}
