package sim

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/internal/pods"
	"zonewise.dev/sim/kinds"
)

// store is both the API server's storage in the copy and the cache of its informers. Its objects are never modified: a
// change replaces them, so copies of one cluster share unchanged objects.
//
// A change is visible in the store and through the listers at once. The informers' handlers see it later, in deliver,
// one after the other and in the order of the changes, as with real informers.
type store struct {
	kinds      map[reflect.Type]*kind
	byResource map[schema.GroupResource]*kind
	order      []*kind
	// beforeEvent is called before handlers get an object.
	beforeEvent func()
	// seed decides in which order handlers first get pods.
	seed int64

	mu      sync.Mutex // guards everything below, and all changes of indexers
	version int64
	uids    int64 // how many UIDs have been given, by place, so that those of one place do not depend on writes elsewhere
	serial  int
	pending []event
	started bool
	marked  *mark // nil before the first Mark
}

// kind is the objects of one kind.
type kind struct {
	store      *store
	gvk        schema.GroupVersionKind
	resource   schema.GroupResource
	namespaced bool
	served     bool
	// informer is that of client-go, for its indexer, which has the objects.
	informer cache.SharedIndexInformer
	indexer  cache.Indexer

	// Guarded by store.mu:
	registrations []*registration
	// finished has the pods that have ended, by key. The scheduler's informer leaves them out.
	finished map[string]client.Object
	// sorted is the last result of inOrderLocked, nil after a change.
	sorted []any
}

// event is an event for handlers.
type event struct {
	kind     *kind
	old, new client.Object
	serial   int
	call     func() // instead of old and new
	origin   string // of a call, as a registration's
}

const (
	namespaceIndex = cache.NamespaceIndex
	nodeIndex      = "zonewise.dev/sim/node"

	uidPrefix = "simulated-"
)

var podType = reflect.TypeFor[*v1.Pod]()

func newStore(each func(), seed int64) *store {
	s := &store{kinds: map[reflect.Type]*kind{}, byResource: map[schema.GroupResource]*kind{}, beforeEvent: each, seed: seed}
	clusterWide := map[string]bool{
		"Namespace": true, "PriorityClass": true, "Node": true, "StorageClass": true, "CSIDriver": true,
		"CSINode": true, "VolumeAttachment": true,
		"PersistentVolume": true, "DeviceClass": true, "ResourceSlice": true, "DeviceTaintRule": true,
		"ZoneReservation": true, "ZoneSurvival": true,
		"ZoneRebalance": true,
	}
	for _, example := range kinds.All() {
		resource, gvk := kinds.ResourceOf(example)
		k := &kind{
			store: s, gvk: gvk, resource: resource, namespaced: !clusterWide[gvk.Kind], served: true,
			finished: map[string]client.Object{},
			informer: cache.NewSharedIndexInformer(
				nil, example, 0, cache.Indexers{namespaceIndex: cache.MetaNamespaceIndexFunc},
			),
		}
		k.indexer = k.informer.GetIndexer()
		s.kinds[reflect.TypeOf(example)] = k
		s.byResource[k.resource] = k
		s.order = append(s.order, k)
	}
	utilruntime.Must(s.kinds[podType].indexer.AddIndexers(cache.Indexers{nodeIndex: func(obj any) ([]string, error) {
		return []string{obj.(*v1.Pod).Spec.NodeName}, nil //nolint:forcetypeassert // nothing else is put in
	}}))
	return s
}

// load stores the first objects. They are not modified; one that lacks a resource version or a UID is copied.
func (s *store) load(objects []client.Object) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, obj := range objects {
		if n, err := strconv.ParseInt(obj.GetResourceVersion(), 10, 64); err == nil {
			s.version = max(s.version, n)
		}
		if serial, ok := strings.CutPrefix(string(obj.GetUID()), uidPrefix); ok { // of a copy that this one is made from
			if n, err := strconv.ParseInt(serial, 10, 64); err == nil {
				s.uids = max(s.uids, n)
			}
		}
	}
	for _, obj := range objects {
		k, err := s.kindOf(obj)
		if err != nil {
			return err
		}
		if obj.GetResourceVersion() == "" || obj.GetUID() == "" {
			obj = shallowCopy(obj)
			s.stampLocked(obj)
		}
		k.putLocked(obj)
	}
	return nil
}

// objects returns all objects, kind by kind and in the order of their keys.
func (s *store) objects() []client.Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []client.Object
	for _, k := range s.order {
		out = append(out, k.allLocked()...)
	}
	return out
}

// allLocked returns the objects of the kind in the order of their keys, as an API server lists them.
func (k *kind) allLocked() []client.Object {
	keys := slices.AppendSeq(k.indexer.ListKeys(), maps.Keys(k.finished))
	slices.Sort(keys)
	out := make([]client.Object, 0, len(keys))
	for _, key := range keys {
		out = append(out, k.currentLocked(key))
	}
	return out
}

// objectsByIndex returns the objects of a kind that have a value in an index, in the order of their keys.
func objectsByIndex[T client.Object](s *store, index string, values ...string) []T {
	var keys []string
	for _, value := range values {
		more, _ := kindFor[T](s).indexer.IndexKeys(index, value) // the indexes are there
		keys = append(keys, more...)
	}
	return objectsByKeys[T](s, keys)
}

// objectsByKeys returns the objects with these keys in the order of the keys.
func objectsByKeys[T client.Object](s *store, keys []string) []T {
	slices.Sort(keys)
	out := make([]T, 0, len(keys))
	for _, key := range keys {
		if obj, ok, _ := kindFor[T](s).indexer.GetByKey(key); ok {
			out = append(out, obj.(T)) //nolint:forcetypeassert // the kind is of T
		}
	}
	return out
}

func copyOf[T client.Object](obj T) T { return obj.DeepCopyObject().(T) } //nolint:forcetypeassert // a copy has the type of the original

// shallowCopy returns a copy that shares what the object's fields point to.
func shallowCopy(obj client.Object) client.Object {
	shallow := reflect.New(reflect.TypeOf(obj).Elem())
	shallow.Elem().Set(reflect.ValueOf(obj).Elem())
	return shallow.Interface().(client.Object) //nolint:forcetypeassert // of the same type
}

// stampLocked gives an object that the store owns a new resource version, and a UID if it has none.
func (s *store) stampLocked(obj client.Object) {
	s.version++
	obj.SetResourceVersion(strconv.FormatInt(s.version, 10))
	if obj.GetUID() == "" {
		s.uids++
		obj.SetUID(types.UID(uidPrefix + strconv.FormatInt(s.uids, 10)))
	}
}

func (k *kind) putLocked(obj client.Object) {
	key := keyOf(obj)
	k.store.rememberLocked(k, key)
	k.sorted = nil
	if isEndedPod(obj) {
		k.finished[key] = obj
		_ = k.indexer.Delete(obj)
		return
	}
	delete(k.finished, key)
	_ = k.indexer.Update(obj) // the key function does not fail for an object with metadata
}

// isEndedPod reports whether an object is a pod that holds no resources any more.
func isEndedPod(obj client.Object) bool {
	pod, ok := obj.(*v1.Pod)
	return ok && pods.Ended(pod)
}

func keyOf(obj client.Object) string {
	if ns := obj.GetNamespace(); ns != "" {
		return ns + "/" + obj.GetName()
	}
	return obj.GetName()
}

// kindFor returns the kind of T.
func kindFor[T client.Object](s *store) *kind { return s.kinds[reflect.TypeFor[T]()] }

// get returns an object by its key, "namespace/name" or "name".
func get[T client.Object](s *store, key string) (T, bool) {
	k := kindFor[T](s)
	if obj, ok, _ := k.indexer.GetByKey(key); ok {
		return obj.(T), true //nolint:forcetypeassert // the kind is of T
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	obj, ok := k.finished[key].(T)
	return obj, ok
}

// list returns all objects of a kind, pods that have ended left out, in the order of their keys.
func list[T client.Object](s *store) []T {
	return objectsByKeys[T](s, kindFor[T](s).indexer.ListKeys())
}

// kindOf returns the kind of an object, or an error that names a kind that copies do not have.
func (s *store) kindOf(obj client.Object) (*kind, error) {
	if k := s.kinds[reflect.TypeOf(obj)]; k != nil {
		return k, nil
	}
	return nil, fmt.Errorf("%T: a simulation knows no such kind", obj)
}

// kindOrder returns where an object's kind stands among all kinds: what others refer to comes first.
func (s *store) kindOrder(obj client.Object) int {
	return slices.Index(s.order, s.kinds[reflect.TypeOf(obj)])
}

// create stores a new object, which the store then owns.
func (s *store) create(obj client.Object) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, err := s.kindOf(obj)
	if err != nil {
		return err
	}
	if k.currentLocked(keyOf(obj)) != nil {
		return apierrors.NewAlreadyExists(k.resource, keyOf(obj))
	}
	obj.SetResourceVersion("")
	s.stampLocked(obj)
	k.putLocked(obj)
	k.replacedLocked(nil, obj)
	return nil
}

// put stores a new or changed object as it is.
func (s *store) put(obj client.Object) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, err := s.kindOf(obj)
	if err != nil {
		return err
	}
	old := k.currentLocked(keyOf(obj))
	if old != nil && (old.GetUID() != obj.GetUID() || leavesNode(old, obj)) {
		k.replacedLocked(old, nil)
		old = nil
	}
	k.putLocked(obj)
	k.replacedLocked(old, obj)
	return nil
}

// leavesNode reports whether a pod that has a node is to have none, which happens to no pod of a cluster: to the
// scheduler, which ends the process on such an update, it is another pod.
func leavesNode(old, obj client.Object) bool {
	was, ok := old.(*v1.Pod)
	now, _ := obj.(*v1.Pod)
	return ok && now != nil && was.Spec.NodeName != "" && now.Spec.NodeName == ""
}

// replacedLocked queues the event that one object replaced another. Handlers do not see pods that have ended.
func (k *kind) replacedLocked(old, obj client.Object) {
	e := event{kind: k}
	if old != nil && !isEndedPod(old) {
		e.old = old
	}
	if obj != nil && !isEndedPod(obj) {
		e.new = obj
	}
	if e.old != nil || e.new != nil {
		k.store.queueEventLocked(e)
	}
}

func (k *kind) currentLocked(key string) client.Object {
	if obj, ok, _ := k.indexer.GetByKey(key); ok {
		return obj.(client.Object) //nolint:forcetypeassert // nothing else is put in
	}
	return k.finished[key]
}

// errUnchanged is returned by a change that leaves the object as it is.
var errUnchanged = errors.New("unchanged")

// update replaces an object by what change makes of a shallow copy of it. change gives fields other values and does not
// modify what they point to: maps, slices and pointers belong to the object before, and to other copies of the cluster.
// It returns the new object.
func (s *store) update(k *kind, key string, change func(obj client.Object) error) (client.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := k.currentLocked(key)
	if old == nil {
		return nil, apierrors.NewNotFound(k.resource, key[strings.LastIndex(key, "/")+1:])
	}
	obj := shallowCopy(old)
	switch err := change(obj); {
	case errors.Is(err, errUnchanged):
		return old, nil
	case err != nil:
		return nil, err
	}
	s.stampLocked(obj)
	k.putLocked(obj)
	k.replacedLocked(old, obj)
	return obj, nil
}

// changeObject is update for a known kind.
func changeObject[T client.Object](s *store, key string, f func(obj T) error) (T, error) {
	obj, err := s.update(kindFor[T](s), key, func(obj client.Object) error { return f(obj.(T)) }) //nolint:forcetypeassert // the kind is of T
	if err != nil {
		var none T
		return none, err
	}
	return obj.(T), nil //nolint:forcetypeassert // the kind is of T
}

// remove deletes an object, if it exists.
func (s *store) remove(k *kind, key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := k.currentLocked(key)
	if old == nil {
		return
	}
	s.rememberLocked(k, key)
	k.sorted = nil
	delete(k.finished, key)
	_ = k.indexer.Delete(old)
	k.replacedLocked(old, nil)
}

func (s *store) queueEventLocked(e event) {
	s.serial++
	e.serial = s.serial
	s.pending = append(s.pending, e)
}

// deliverEvents calls the handlers until no event is left.
func (s *store) deliverEvents() {
	for {
		s.mu.Lock()
		if len(s.pending) == 0 {
			s.mu.Unlock()
			return
		}
		events := s.pending
		s.pending = nil
		s.mu.Unlock()
		for i := range events {
			e := &events[i]
			if e.call != nil {
				e.call()
				continue
			}
			s.beforeEvent()
			s.mu.Lock()
			registrations := e.kind.registrations
			s.mu.Unlock()
			for _, r := range registrations {
				if r.serial < e.serial {
					r.handleEvent(e)
				}
			}
		}
	}
}

func (s *store) allDelivered() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.pending) == 0
}
