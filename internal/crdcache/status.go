package crdcache

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

// StatusPatch returns the JSON merge patch that gives an object the fields of status. It names the UID and the version that the
// status was made for, so that the API server refuses it when somebody else was faster. A merge patch leaves what it does not
// name as it is, and replaces a list as a whole: fields that may be empty have to be there, as empty lists and not as nil.
func StatusPatch(obj metav1.Object, status map[string]any) ([]byte, error) {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": obj.GetUID(), "resourceVersion": obj.GetResourceVersion()},
		"status":   status,
	})
	if err != nil {
		return nil, fmt.Errorf("status of %s: %w", klog.KObj(obj), err)
	}
	return patch, nil
}

// KeepStatuses calls write for each UID in the queue, one at a time, until the queue is shut down. What could not be written is
// tried again after retry; a conflict, too, since the watch is about to bring a newer object. kind is for the log.
func KeepStatuses(ctx context.Context, queue workqueue.TypedDelayingInterface[types.UID], kind string, retry time.Duration, write func(context.Context, types.UID) error) {
	logger := klog.FromContext(ctx)
	for {
		uid, shutdown := queue.Get()
		if shutdown {
			return
		}
		if err := write(ctx, uid); err != nil {
			logger.V(2).Info("Could not write a status; will try again", "kind", kind, "uid", uid, "err", err)
			queue.AddAfter(uid, retry)
		}
		queue.Done(uid)
	}
}
