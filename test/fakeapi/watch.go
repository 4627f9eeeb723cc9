package fakeapi

import (
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// selects reports whether a pod passes a field selector, of which the phase is known: the scheduler's informer leaves finished pods out.
func selects(selector fields.Selector, object runtime.Object) bool {
	pod, isPod := object.(*v1.Pod)
	if !isPod || selector == nil || selector.Empty() {
		return true
	}
	return selector.Matches(fields.Set{
		"status.phase": string(pod.Status.Phase), "spec.nodeName": pod.Spec.NodeName, "metadata.name": pod.Name, "metadata.namespace": pod.Namespace,
	})
}

// copiedWatch passes on copies of the objects of a watch. An object that the selector does not pass any more is deleted to it.
type copiedWatch struct {
	watch.Interface
	copies chan watch.Event
	stop   func()
}

func copied(w watch.Interface, selector fields.Selector) *copiedWatch {
	stopped := make(chan struct{})
	c := &copiedWatch{w, make(chan watch.Event), sync.OnceFunc(func() { close(stopped) })}
	go func() {
		defer close(c.copies)
		for e := range w.ResultChan() {
			e.Object = e.Object.DeepCopyObject()
			if e.Type != watch.Deleted && !selects(selector, e.Object) {
				e.Type = watch.Deleted // to an informer that does not have it this is no event
			}
			select {
			case c.copies <- e:
			case <-stopped:
				return
			}
		}
	}()
	return c
}

func (c *copiedWatch) ResultChan() <-chan watch.Event { return c.copies }

func (c *copiedWatch) Stop() {
	c.stop()
	c.Interface.Stop()
}
