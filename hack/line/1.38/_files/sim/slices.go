package sim

import (
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	draapi "k8s.io/dynamic-resource-allocation/api"
)

// viewSlices adds the informer by which the scheduler reads ResourceSlices: a view of the same store that converts
// them. Without it the scheduler would make an informer that lists and watches, by goroutines that a Sim does not wait
// for.
func viewSlices(factory informers.SharedInformerFactory, s *store) {
	k := kindFor[*resourcev1.ResourceSlice](s)
	factory.InformerFor(&draapi.ResourceSlice{}, func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer {
		return &sliceView{informerView{k.informer, k}}
	})
}

// sliceView is the informer of ResourceSlices in the form in which the scheduler reads them since 1.38.
type sliceView struct {
	informerView
}

func sliceOf(obj any) any {
	in, ok := obj.(*resourcev1.ResourceSlice)
	if !ok {
		return obj
	}
	out := &draapi.ResourceSlice{}
	if err := draapi.Convert_v1_ResourceSlice_To_api_ResourceSlice(in, out, nil); err != nil {
		panic(err)
	}
	return out
}

func slicesOf(objects []any) []any {
	out := make([]any, len(objects))
	for i, obj := range objects {
		out[i] = sliceOf(obj)
	}
	return out
}

type sliceHandler struct{ cache.ResourceEventHandler }

func (h sliceHandler) OnAdd(obj any, first bool) { h.ResourceEventHandler.OnAdd(sliceOf(obj), first) }
func (h sliceHandler) OnUpdate(old, obj any) {
	h.ResourceEventHandler.OnUpdate(sliceOf(old), sliceOf(obj))
}
func (h sliceHandler) OnDelete(obj any) { h.ResourceEventHandler.OnDelete(sliceOf(obj)) }

func (v *sliceView) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return v.kind.register(sliceHandler{handler}), nil
}

func (v *sliceView) AddEventHandlerWithResyncPeriod(handler cache.ResourceEventHandler, _ time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	return v.kind.register(sliceHandler{handler}), nil
}

func (v *sliceView) AddEventHandlerWithOptions(handler cache.ResourceEventHandler, _ cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	return v.kind.register(sliceHandler{handler}), nil
}

func (v *sliceView) GetStore() cache.Store { return sliceIndexer{v.SharedIndexInformer.GetIndexer()} }
func (v *sliceView) GetIndexer() cache.Indexer {
	return sliceIndexer{v.SharedIndexInformer.GetIndexer()}
}
func (v *sliceView) AddIndexers(indexers cache.Indexers) error {
	converting := cache.Indexers{}
	for name, f := range indexers {
		converting["scheduler/"+name] = func(obj any) ([]string, error) { return f(sliceOf(obj)) }
	}
	return v.informerView.AddIndexers(converting)
}

type sliceIndexer struct{ cache.Indexer }

func (i sliceIndexer) List() []any { return slicesOf(i.Indexer.List()) }
func (i sliceIndexer) Get(obj any) (any, bool, error) {
	out, ok, err := i.Indexer.Get(obj)
	return sliceOf(out), ok, err
}
func (i sliceIndexer) GetByKey(key string) (any, bool, error) {
	out, ok, err := i.Indexer.GetByKey(key)
	return sliceOf(out), ok, err
}
func (i sliceIndexer) Index(name string, obj any) ([]any, error) {
	out, err := i.Indexer.Index("scheduler/"+name, obj)
	return slicesOf(out), err
}
func (i sliceIndexer) IndexKeys(name, value string) ([]string, error) {
	return i.Indexer.IndexKeys("scheduler/"+name, value)
}
func (i sliceIndexer) ListIndexFuncValues(name string) []string {
	return i.Indexer.ListIndexFuncValues("scheduler/" + name)
}
func (i sliceIndexer) ByIndex(name, value string) ([]any, error) {
	out, err := i.Indexer.ByIndex("scheduler/"+name, value)
	return slicesOf(out), err
}
