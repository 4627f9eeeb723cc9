package sim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strconv"
	"sync"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apiserver/pkg/endpoints/request"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/sim/kinds"
)

// api serves the store to clients in this process, as far as a scheduler and its plugins use it: reads, status and
// other patches, updates, bindings, evictions, deletions. It is the transport of a rest.Config. Unknown kinds are
// answered as by an API server that does not have them; events are accepted and dropped.
type api struct{ *Sim }

var (
	codecs  = serializer.NewCodecFactory(kinds.Scheme)
	decoder = codecs.UniversalDeserializer()
	paths   = &request.RequestInfoFactory{
		APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api"),
	}
)

// RoundTrip implements http.RoundTripper.
func (a api) RoundTrip(r *http.Request) (*http.Response, error) {
	defer a.beginRequest()()
	var body []byte
	if r.Body != nil {
		var err error
		body, err = io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		_ = r.Body.Close()
	}
	answer, err := a.serveRequest(r, body)
	status := http.StatusOK
	if err != nil {
		failed, ok := errors.AsType[*apierrors.StatusError](err)
		if !ok {
			failed = apierrors.NewInternalError(err)
		}
		s := failed.Status()
		s.Kind, s.APIVersion = "Status", "v1"
		answer, status = &s, int(s.Code)
	}
	response := &http.Response{
		StatusCode: status, Status: strconv.Itoa(status), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{"Content-Type": {runtime.ContentTypeJSON}},
	}
	if stream, ok := answer.(io.ReadCloser); ok {
		response.Body = stream
		return response, nil
	}
	data, err := json.Marshal(answer)
	if err != nil {
		return nil, err
	}
	response.Body, response.ContentLength = io.NopCloser(bytes.NewReader(data)), int64(len(data))
	return response, nil
}

// serveRequest answers one request.
func (a api) serveRequest(r *http.Request, body []byte) (any, error) {
	info, err := paths.NewRequestInfo(r)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if info.Resource == "events" && info.Verb == "create" {
		return json.RawMessage(body), nil
	}
	k := a.store.byResource[schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}]
	if k == nil || k.gvk.Version != info.APIVersion || !k.served {
		return a.serveOther(r, info)
	}
	if info.Verb == "list" || info.Verb == "watch" {
		select {
		case <-a.ready: // a list may wake pods, which needs the scheduler's queue
		case <-time.After(time.Second): // a plugin that lists while it is built
		}
	}
	key := info.Name
	if k.namespaced && info.Namespace != "" {
		key = info.Namespace + "/" + info.Name
	}
	switch info.Verb {
	case "get":
		return a.getObject(k, key)
	case "list":
		return a.listObjects(k, info.Namespace, r)
	case "watch":
		return a.watchObjects(k, info.Namespace, r)
	case "create":
		return a.createObject(r, k, info, key, body)
	case "update", "patch":
		return a.writeObject(r, k, info, key, body)
	case "delete":
		var options metav1.DeleteOptions
		_ = json.Unmarshal(body, &options) // an empty body has no options
		obj, err := a.getObject(k, key)
		switch {
		case err != nil:
			return nil, err
		case options.Preconditions != nil && options.Preconditions.UID != nil && *options.Preconditions.UID != obj.GetUID():
			return nil, conflict(k, obj)
		case len(options.DryRun) > 0:
			return obj, nil
		}
		return obj, a.handleDeletion(k, key, options.GracePeriodSeconds)
	}
	return nil, apierrors.NewMethodNotSupported(k.resource, info.Verb)
}

// serveOther answers for the kinds of Kubernetes that the store does not have: they have no objects.
func (a api) serveOther(r *http.Request, info *request.RequestInfo) (any, error) {
	gvr := schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}
	gvk, known := otherKinds()[gvr]
	switch {
	case known && info.Verb == "list":
		return &metav1.PartialObjectMetadataList{
			TypeMeta: metav1.TypeMeta{Kind: gvk.Kind + "List", APIVersion: gvk.GroupVersion().String()},
			ListMeta: metav1.ListMeta{ResourceVersion: "1"},
		}, nil
	case known && info.Verb == "watch":
		return newStream(r)
	}
	return nil, apierrors.NewGenericServerResponse(
		http.StatusNotFound, info.Verb, gvr.GroupResource(), info.Name, "", 0, false,
	)
}

// otherKinds has the kinds of the scheme by their resources.
var otherKinds = sync.OnceValue(func() map[schema.GroupVersionResource]schema.GroupVersionKind {
	out := map[schema.GroupVersionResource]schema.GroupVersionKind{}
	for gvk := range kinds.Scheme.AllKnownTypes() {
		plural, _ := meta.UnsafeGuessKindToResource(gvk)
		out[plural] = gvk
	}
	return out
})

func (a api) getObject(k *kind, key string) (client.Object, error) {
	a.store.mu.Lock()
	defer a.store.mu.Unlock()
	if obj := k.currentLocked(key); obj != nil {
		return k.withKind(obj), nil
	}
	return nil, apierrors.NewNotFound(k.resource, key)
}

// withKind returns a shallow copy with its kind set, as JSON needs.
func (k *kind) withKind(obj client.Object) client.Object {
	out := shallowCopy(obj)
	out.GetObjectKind().SetGroupVersionKind(k.gvk)
	return out
}

// selection says which objects a list or a watch asks for.
func selection(k *kind, namespace string, r *http.Request) (func(obj client.Object) bool, error) {
	byLabel, err := labels.Parse(r.URL.Query().Get("labelSelector"))
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	byField, err := fields.ParseSelector(r.URL.Query().Get("fieldSelector"))
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return func(obj client.Object) bool {
		if namespace != "" && k.namespaced && obj.GetNamespace() != namespace ||
			!byLabel.Matches(labels.Set(obj.GetLabels())) {
			return false
		}
		if byField.Empty() {
			return true
		}
		set := fields.Set{"metadata.name": obj.GetName(), "metadata.namespace": obj.GetNamespace()}
		if pod, ok := obj.(*v1.Pod); ok {
			set["spec.nodeName"], set["spec.schedulerName"], set["status.phase"] = pod.Spec.NodeName, pod.Spec.SchedulerName, string(pod.Status.Phase)
		}
		return byField.Matches(set)
	}, nil
}

func (a api) listObjects(k *kind, namespace string, r *http.Request) (any, error) {
	selected, err := selection(k, namespace, r)
	if err != nil {
		return nil, err
	}
	a.store.mu.Lock()
	defer a.store.mu.Unlock()
	out := struct {
		metav1.TypeMeta `json:",inline"`
		metav1.ListMeta `json:"metadata"`

		Items []client.Object `json:"items"`
	}{
		TypeMeta: metav1.TypeMeta{Kind: k.gvk.Kind + "List", APIVersion: k.gvk.GroupVersion().String()},
		ListMeta: metav1.ListMeta{ResourceVersion: strconv.FormatInt(a.store.version, 10)}, Items: []client.Object{},
	}
	for _, obj := range k.allLocked() {
		if selected(obj) {
			out.Items = append(out.Items, k.withKind(obj))
		}
	}
	return out, nil
}

func (a api) createObject(r *http.Request, k *kind, info *request.RequestInfo, key string, body []byte) (any, error) {
	decoded, _, err := decoder.Decode(body, nil, nil)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	switch obj := decoded.(type) {
	case *v1.Binding:
		return success, a.handleBinding(key, obj, r.URL.Query().Has("dryRun"))
	case *policyv1.Eviction:
		return success, a.handleEviction(key, obj.DeleteOptions, r.URL.Query().Has("dryRun"))
	case client.Object:
		if obj.GetName() == "" && obj.GetGenerateName() != "" {
			a.store.mu.Lock()
			a.store.version++
			obj.SetName(fmt.Sprintf("%s%d", obj.GetGenerateName(), a.store.version))
			a.store.mu.Unlock()
		}
		if k.namespaced && obj.GetNamespace() == "" {
			obj.SetNamespace(info.Namespace)
		}
		if err := a.store.create(obj); err != nil {
			return nil, err
		}
		a.afterWrite(r.Context(), obj)
		return k.withKind(obj), nil
	}
	return nil, apierrors.NewBadRequest(fmt.Sprintf("%T cannot be created", decoded))
}

// handleBinding serves the binding of a pod.
func (a api) handleBinding(key string, binding *v1.Binding, dryRun bool) error {
	k := kindFor[*v1.Pod](a.store)
	pod, ok := get[*v1.Pod](a.store, key)
	switch {
	case !ok:
		return apierrors.NewNotFound(k.resource, binding.Name)
	case binding.UID != "" && binding.UID != pod.UID, pod.Spec.NodeName != "", pod.DeletionTimestamp != nil:
		return conflict(k, pod)
	case dryRun:
		return nil
	}
	return a.bindPod(pod, binding.Target.Name)
}

// writeObject serves update and patch.
func (a api) writeObject(r *http.Request, k *kind, info *request.RequestInfo, key string, body []byte) (any, error) {
	obj, err := a.store.update(k, key, func(obj client.Object) error {
		sent, err := k.requestedObject(types.PatchType(r.Header.Get("Content-Type")), info, body, obj)
		switch {
		case err != nil:
			return err
		case sent.GetUID() != "" && sent.GetUID() != obj.GetUID(),
			sent.GetResourceVersion() != "" && sent.GetResourceVersion() != obj.GetResourceVersion():
			return conflict(k, obj)
		case info.Subresource == "status":
			setStatus(obj, sent)
		default:
			sent.SetUID(obj.GetUID())
			reflect.ValueOf(obj).Elem().Set(reflect.ValueOf(sent).Elem())
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	a.afterWrite(r.Context(), obj)
	return k.withKind(obj), nil
}

// requestedObject returns the object that an update or a patch asks for.
func (k *kind) requestedObject(
	patch types.PatchType, info *request.RequestInfo, body []byte, current client.Object,
) (client.Object, error) {
	if info.Verb == "patch" {
		stored, err := json.Marshal(k.withKind(current))
		if err != nil {
			return nil, err
		}
		switch patch {
		case types.StrategicMergePatchType:
			body, err = strategicpatch.StrategicMergePatch(stored, body, current)
		case types.MergePatchType:
			body, err = jsonpatch.MergePatch(stored, body)
		default:
			return nil, apierrors.NewGenericServerResponse(
				http.StatusUnsupportedMediaType, info.Verb, k.resource, info.Name, string(patch), 0, false,
			)
		}
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	}
	decoded, _, err := decoder.Decode(body, &k.gvk, nil)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if obj, ok := decoded.(client.Object); ok && reflect.TypeOf(obj) == reflect.TypeOf(current) {
		return obj, nil
	}
	return nil, apierrors.NewBadRequest(fmt.Sprintf("%T is not a %s", decoded, k.gvk.Kind))
}

var success = &metav1.Status{
	TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess, Code: http.StatusCreated,
}

func conflict(k *kind, obj client.Object) error {
	return apierrors.NewConflict(k.resource, obj.GetName(), errors.New("the object has been modified"))
}

// setStatus copies the status of an object to another one of its type.
func setStatus(obj, from client.Object) {
	status, wanted := reflect.ValueOf(obj).Elem().FieldByName("Status"), reflect.ValueOf(from).Elem().FieldByName("Status")
	if status.IsValid() {
		status.Set(wanted)
	}
}
