package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/utils/ptr"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/test/chaos/history"
	"zonewise.dev/test/internal/audit"
)

// recorder sees every change in etcd, in etcd's order. It sees what an API server wrote that was killed before it could
// tell, and a restart of etcd does not end it.
type recorder struct {
	client *clientv3.Client

	mu      sync.Mutex // guards what follows
	changes []history.Change
	last    int64 // the revision that has been seen
	failure error // what could not be understood
}

// startRecorder starts it at the beginning of etcd's history, until ctx ends.
func startRecorder(ctx context.Context, endpoint string) (*recorder, error) {
	c, err := clientv3.New(clientv3.Config{Context: ctx, Endpoints: []string{endpoint}, DialTimeout: 5 * time.Second, MaxCallRecvMsgSize: 1 << 30})
	if err != nil {
		return nil, err
	}
	r := &recorder{client: c}
	go r.run(ctx)
	return r, nil
}

func (r *recorder) run(ctx context.Context) {
	defer r.client.Close()
	for ctx.Err() == nil {
		r.mu.Lock()
		next := r.last + 1
		r.mu.Unlock()
		for response := range r.client.Watch(ctx, "/registry/", clientv3.WithPrefix(), clientv3.WithRev(next), clientv3.WithPrevKV()) {
			r.take(response.Events)
		}
		_ = pause(ctx, 100*time.Millisecond)
	}
}

func (r *recorder) take(events []*clientv3.Event) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range events {
		r.last = e.Kv.ModRevision
		value, deleted := e.Kv.Value, e.Type == clientv3.EventTypeDelete
		if deleted && e.PrevKv != nil {
			value = e.PrevKv.Value
		}
		c := history.Change{Revision: e.Kv.ModRevision, Time: now, Deleted: deleted}
		if known, err := understand(&c, string(e.Kv.Key), value); err != nil {
			r.failure = fmt.Errorf("%s: %w", e.Kv.Key, err)
		} else if known {
			r.changes = append(r.changes, c)
		}
	}
}

// understand puts the object into a change; false means that a run does not care for it.
func understand(c *history.Change, key string, value []byte) (bool, error) {
	var object metav1.Object
	switch {
	case strings.HasPrefix(key, "/registry/pods/"):
		c.Pod = &v1.Pod{}
		object = c.Pod
	case strings.HasPrefix(key, "/registry/minions/"):
		c.Node = &v1.Node{}
		object = c.Node
	case strings.HasPrefix(key, "/registry/leases/kube-system/"+schedulerName):
		c.Lease = &coordinationv1.Lease{}
		object = c.Lease
	case strings.HasPrefix(key, "/registry/scheduling.x-k8s.io/podgroups/"):
		c.Group = &schedulingv1alpha1.PodGroup{}
		object = c.Group
	case strings.HasPrefix(key, "/registry/zonewise.dev/zonespreadpolicies/"):
		c.Policy = &v1alpha1.ZoneSpreadPolicy{}
		object = c.Policy
	case strings.HasPrefix(key, "/registry/zonewise.dev/zonereservations/"):
		c.Reservation = &v1alpha1.ZoneReservation{}
		object = c.Reservation
	default:
		var err error
		c.Group, err = nativeGroupOf(key, value)
		return c.Group != nil, err
	}
	err := json.NewDecoder(bytes.NewReader(value)).Decode(object)
	object.SetManagedFields(nil)
	return true, err
}

// record is what has been seen so far, but for what was seen first.
func (r *recorder) record(without int) ([]history.Change, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clip(r.changes[without:]), r.failure
}

// catchUp waits until everything has been seen that was written before the call.
func (r *recorder) catchUp(ctx context.Context) error {
	return persist(ctx, func() error {
		response, err := r.client.Get(ctx, "/registry/", clientv3.WithPrefix(), clientv3.WithLimit(1), clientv3.WithKeysOnly(), clientv3.WithSort(clientv3.SortByModRevision, clientv3.SortDescend))
		if err != nil {
			return err
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(response.Kvs) > 0 && r.last < response.Kvs[0].ModRevision {
			return fmt.Errorf("the recorder has seen revision %d of %d", r.last, response.Kvs[0].ModRevision)
		}
		return nil
	})
}

// requests are what schedulers have asked for since a time, by the audit log.
func requests(log *audit.Log, since time.Time) ([]history.Request, error) {
	events, err := log.Events()
	if err != nil {
		return nil, err
	}
	var out []history.Request
	for i := range events {
		e := &events[i]
		if e.ObjectRef == nil || e.ResponseStatus == nil || strings.HasSuffix(e.ObjectRef.Resource, "reviews") || e.RequestReceivedTimestamp.Time.Before(since) {
			continue
		}
		q := history.Request{
			Received: e.RequestReceivedTimestamp.Time, Answered: e.StageTimestamp.Time, Writer: audit.Program(e), Verb: e.Verb,
			Resource: e.ObjectRef.Resource, Subresource: e.ObjectRef.Subresource, Namespace: e.ObjectRef.Namespace, Name: e.ObjectRef.Name,
			Code: e.ResponseStatus.Code, DryRun: strings.Contains(e.RequestURI, "dryRun="),
		}
		if err := detail(&q, e); err != nil {
			return nil, fmt.Errorf("audit log: %s %s: %w", q.Verb, e.RequestURI, err)
		}
		out = append(out, q)
	}
	return out, nil
}

// detail reads what was asked and answered.
func detail(q *history.Request, e *auditv1.Event) error {
	if e.ResponseObject != nil {
		var answer metav1.PartialObjectMetadata
		if err := json.Unmarshal(e.ResponseObject.Raw, &answer); err != nil {
			return err
		}
		q.Revision, _ = strconv.ParseInt(answer.ResourceVersion, 10, 64) // a Status has none
	}
	switch {
	case e.RequestObject == nil:
	case q.Binds():
		var binding v1.Binding
		if err := json.Unmarshal(e.RequestObject.Raw, &binding); err != nil {
			return err
		}
		q.UID, q.Node = binding.UID, binding.Target.Name
	case q.Resource == "leases":
		var asked coordinationv1.Lease
		if err := json.Unmarshal(e.RequestObject.Raw, &asked); err != nil {
			return err
		}
		q.Holder = ptr.Deref(asked.Spec.HolderIdentity, "")
	case q.Deletes():
		var asked struct {
			metav1.DeleteOptions `json:",inline"`
			Options              metav1.DeleteOptions `json:"deleteOptions"` // of an eviction
		}
		if err := json.Unmarshal(e.RequestObject.Raw, &asked); err != nil {
			return err
		}
		q.DryRun = q.DryRun || len(asked.DryRun)+len(asked.Options.DryRun) > 0
	case q.Resource == "podgroups" && q.Subresource == "status" && strings.HasPrefix(e.RequestURI, "/apis/scheduling.k8s.io/"):
		var asked struct {
			Status struct {
				Conditions []metav1.Condition `json:"conditions"`
			} `json:"status"`
		}
		if err := json.Unmarshal(e.RequestObject.Raw, &asked); err != nil {
			return err
		}
		q.KubeSchedulers = slices.ContainsFunc(asked.Status.Conditions, func(c metav1.Condition) bool { return !strings.HasPrefix(c.Type, "zonewise.dev/") })
	}
	return nil
}
