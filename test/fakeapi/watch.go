package fakeapi

import (
	"sync"

	"k8s.io/apimachinery/pkg/watch"
)

// copiedWatch passes on copies of the objects of a watch.
type copiedWatch struct {
	watch.Interface
	copies chan watch.Event
	stop   func()
}

func copied(w watch.Interface) *copiedWatch {
	stopped := make(chan struct{})
	c := &copiedWatch{w, make(chan watch.Event), sync.OnceFunc(func() { close(stopped) })}
	go func() {
		defer close(c.copies)
		for e := range w.ResultChan() {
			e.Object = e.Object.DeepCopyObject()
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
