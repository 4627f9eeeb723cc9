package sim

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// watchObjects serves the watches of plugins' own informers.
func (a api) watchObjects(k *kind, namespace string, r *http.Request) (any, error) {
	selected, err := selection(k, namespace, r)
	if err != nil {
		return nil, err
	}
	s, err := newStream(r)
	if err != nil {
		return nil, err
	}
	send := func(kind watch.EventType, obj any) {
		if o, ok := obj.(client.Object); ok && selected(o) {
			s.sendEvent(kind, k.withKind(o))
		}
	}
	since, _ := strconv.ParseInt(r.URL.Query().Get("resourceVersion"), 10, 64)
	reg := k.register(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, first bool) {
			// Do not send again what the client has listed.
			if version, err := strconv.ParseInt(obj.(client.Object).GetResourceVersion(), 10, 64); !first || err == nil && version > since { //nolint:forcetypeassert // nothing else is in the store
				send(watch.Added, obj)
			}
		},
		UpdateFunc: func(old, obj any) {
			before, after := selected(old.(client.Object)), selected(obj.(client.Object)) //nolint:forcetypeassert // nothing else is in the store
			switch {
			case before && after:
				send(watch.Modified, obj)
			case after:
				send(watch.Added, obj)
			case before:
				send(watch.Deleted, old)
			}
		},
		DeleteFunc: func(obj any) { send(watch.Deleted, obj) },
	})
	s.stop = func() { k.unregister(reg) }
	return s, nil
}

// stream is the body of a watch. What is sent is read at once: a reflector waits for nothing of the copy.
type stream struct {
	*io.PipeReader
	encoder *json.Encoder
	stop    func()
}

func newStream(r *http.Request) (*stream, error) {
	if r.URL.Query().Get("sendInitialEvents") == "true" {
		// The client lists then.
		return nil, apierrors.NewInvalid(metav1.SchemeGroupVersion.WithKind("ListOptions").GroupKind(), "", nil)
	}
	body, writer := io.Pipe()
	context.AfterFunc(r.Context(), func() { _ = writer.Close() })
	return &stream{PipeReader: body, encoder: json.NewEncoder(writer), stop: func() {}}, nil
}

func (s *stream) sendEvent(kind watch.EventType, obj client.Object) {
	_ = s.encoder.Encode(struct {
		Type   watch.EventType `json:"type"`
		Object client.Object   `json:"object"`
	}{kind, obj}) // objects of the scheme can be encoded, and only a client that has gone does not read
}

// Close implements io.Closer.
func (s *stream) Close() error {
	s.stop()
	return s.PipeReader.Close()
}
