package fakeapi

import (
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// selects reports whether a pod passes a field selector, of which the phase is known: the scheduler's informer leaves
// finished pods out.
func selects(selector fields.Selector, object runtime.Object) bool {
	pod, isPod := object.(*v1.Pod)
	if !isPod || selector == nil || selector.Empty() {
		return true
	}
	return selector.Matches(fields.Set{
		"status.phase": string(pod.Status.Phase), "spec.nodeName": pod.Spec.NodeName, "metadata.name": pod.Name, "metadata.namespace": pod.Namespace,
	})
}

// copiedWatch passes on copies of the objects of a watch, late and twice if the server says so. An object that the
// selector does not pass any more is deleted to it.
type copiedWatch struct {
	watch.Interface
	copies  chan watch.Event
	stopped chan struct{}
	stop    func()
}

// arrival is an event that a watch has been sent, and when.
type arrival struct {
	watch.Event
	at time.Time
}

func (s *Server) copied(w watch.Interface, selector fields.Selector) *copiedWatch {
	stopped := make(chan struct{})
	c := &copiedWatch{w, make(chan watch.Event), stopped, sync.OnceFunc(func() { close(stopped) })}
	arrivals := make(chan arrival, watch.DefaultChanSize)
	go func() {
		defer close(arrivals)
		for e := range w.ResultChan() {
			e.Object = e.Object.DeepCopyObject()
			if e.Type != watch.Deleted && !selects(selector, e.Object) {
				e.Type = watch.Deleted // to an informer that does not have it this is no event
			}
			select {
			case arrivals <- arrival{e, time.Now()}:
			case <-stopped:
				return
			}
		}
	}()
	go func() {
		defer close(c.copies)
		for e := range arrivals {
			if !s.deliver(c, e) {
				return
			}
		}
	}()
	return c
}

// deliver passes an event on. It returns false when the watch has been stopped.
func (s *Server) deliver(c *copiedWatch, e arrival) bool {
	if late := time.Duration(s.EventDelay.Load()) - time.Since(e.at); s.EventDelay.Load() > 0 && late > 0 {
		select {
		case <-time.After(late):
		case <-c.stopped:
			return false
		}
	}
	events := []watch.Event{e.Event}
	if e.Type == watch.Modified && s.RepeatEvents.Load() {
		events = append(events, watch.Event{Type: e.Type, Object: e.Object.DeepCopyObject()})
	}
	for _, event := range events {
		select {
		case c.copies <- event:
		case <-c.stopped:
			return false
		}
	}
	return true
}

func (c *copiedWatch) ResultChan() <-chan watch.Event { return c.copies }

func (c *copiedWatch) Stop() {
	c.stop()
	c.Interface.Stop()
}
