// Package perscheduler keeps one value for each running scheduler.
//
// The framework builds a plugin once per profile, but all profiles of a scheduler see one cluster, so
// they must share state such as a ledger. A package-level variable would do in a process with one
// scheduler, but tests and embedders run several. The key is the informer factory of the handles: all
// profiles of one scheduler share it, and two schedulers never do.
package perscheduler

import (
	"context"
	"sync"

	"k8s.io/client-go/informers"
)

// Handle is the part of the framework's handle that identifies the scheduler.
type Handle interface {
	SharedInformerFactory() informers.SharedInformerFactory
}

type key struct {
	factory informers.SharedInformerFactory
	name    string
}

var (
	mu     sync.Mutex // guards values
	values = map[key]any{}
)

// Get returns the value that the scheduler behind h keeps under name, made by newValue at the first
// call. It is dropped when the ctx of that first call, which is the scheduler's, ends.
//
// It may be called from several goroutines; newValue runs at most once per scheduler and name, under a
// lock, and must not call Get. All callers of one name must ask for one type.
func Get[T any](ctx context.Context, h Handle, name string, newValue func() T) T {
	k := key{factory: h.SharedInformerFactory(), name: name}
	mu.Lock()
	defer mu.Unlock()
	if v, ok := values[k]; ok {
		return v.(T) //nolint:forcetypeassert // by contract a name has one type; a panic names both.
	}
	v := newValue()
	values[k] = v
	context.AfterFunc(ctx, func() {
		mu.Lock()
		defer mu.Unlock()
		delete(values, k)
	})
	return v
}
