package rebalance

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/sim"
	"zonewise.dev/test/descheduler"
)

// descheduleEvery is how often the descheduler is run.
const descheduleEvery = 10 * time.Minute

// addDescheduler has the descheduler move pods of the cluster in memory, instead of the ZoneRebalance.
func (d *day) addDescheduler() {
	d.t.Helper()
	server := httptest.NewServer(http.HandlerFunc(d.serve))
	d.t.Cleanup(server.Close)
	kubeconfig := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c}}],
clusters: [{name: c, cluster: {server: %q}}]}`, server.URL)
	program, err := descheduler.New("../../..", d.t.TempDir(), []byte(kubeconfig))
	require.NoError(d.t, err)
	d.descheduler = program
}

// serve is what the descheduler needs of an API server: it discovers evictions, lists once, watches, and evicts.
func (d *day) serve(w http.ResponseWriter, r *http.Request) {
	path := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case r.Method == http.MethodPost && path[len(path)-1] == "eviction":
		pod, ok := sim.Get[*v1.Pod](d.sim, path[3], path[5])
		err := error(apierrors.NewNotFound(v1.Resource("pods"), path[5]))
		if ok {
			err = d.evict(pod)
		}
		answer(w, err)
	case r.Method == http.MethodPost: // an event
		answer(w, nil)
	case r.URL.Query().Get("sendInitialEvents") == "true": // the client lists then
		answer(w, apierrors.NewInvalid(metav1.SchemeGroupVersion.WithKind("ListOptions").GroupKind(), "", nil))
	case r.URL.Query().Has("watch"):
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusOK)
		if f, ok := w.(http.Flusher); ok {
			f.Flush()
		}
		<-r.Context().Done()
	default:
		objects := map[string]func() any{
			"/version": func() any { return version.Info{Major: "1", Minor: "37", GitVersion: "v1.37.2"} },
			"/api":     func() any { return metav1.APIVersions{Versions: []string{"v1"}} },
			"/apis": func() any {
				of := metav1.GroupVersionForDiscovery{GroupVersion: "policy/v1", Version: "v1"}
				return metav1.APIGroupList{Groups: []metav1.APIGroup{{Name: "policy", Versions: []metav1.GroupVersionForDiscovery{of}, PreferredVersion: of}}}
			},
			"/api/v1": func() any {
				return metav1.APIResourceList{GroupVersion: "v1", APIResources: []metav1.APIResource{{Name: "pods/eviction", Kind: "Eviction", Namespaced: true}}}
			},
			"/api/v1/pods":  func() any { return listOf[*v1.Pod](d.sim, "v1", "PodList") },
			"/api/v1/nodes": func() any { return listOf[*v1.Node](d.sim, "v1", "NodeList") },
			"/api/v1/namespaces": func() any {
				return listOf[*v1.Namespace](d.sim, "v1", "NamespaceList")
			},
			"/api/v1/persistentvolumeclaims": func() any {
				return listOf[*v1.PersistentVolumeClaim](d.sim, "v1", "PersistentVolumeClaimList")
			},
			"/apis/policy/v1/poddisruptionbudgets": func() any {
				return listOf[*policyv1.PodDisruptionBudget](d.sim, "policy/v1", "PodDisruptionBudgetList")
			},
			"/apis/scheduling.k8s.io/v1/priorityclasses": func() any {
				return listOf[*schedulingv1.PriorityClass](d.sim, "scheduling.k8s.io/v1", "PriorityClassList")
			},
		}
		if object := objects[r.URL.Path]; object != nil {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(object()) // a client that has gone does not read
			return
		}
		answer(w, apierrors.NewNotFound(v1.Resource(path[len(path)-1]), ""))
	}
}

// list is one of objects.
type list[T client.Object] struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []T `json:"items"`
}

func listOf[T client.Object](s *sim.Sim, version, kind string) list[T] {
	return list[T]{
		TypeMeta: metav1.TypeMeta{APIVersion: version, Kind: kind}, ListMeta: metav1.ListMeta{ResourceVersion: "1"},
		Items: append([]T{}, sim.List[T](s)...),
	}
}

// answer writes a Status.
func answer(w http.ResponseWriter, err error) {
	status := metav1.Status{Status: metav1.StatusSuccess, Code: http.StatusCreated}
	if err != nil {
		failed, ok := errors.AsType[*apierrors.StatusError](err)
		if !ok {
			failed = apierrors.NewInternalError(err)
		}
		status = failed.Status()
	}
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(status.Code))
	_ = json.NewEncoder(w).Encode(status) // a client that has gone does not read
}
