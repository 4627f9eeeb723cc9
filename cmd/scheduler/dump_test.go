//go:build !windows

package main

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
)

// apiServer serves lists and watches of the resources that Kubernetes has. All lists are empty save those of
// nodes and pods, and a watch of nodes tells of what is put into more.
type apiServer struct {
	lists map[string]runtime.Object
	more  chan *v1.Node
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Path == "/version" {
		_, _ = w.Write([]byte(`{"major":"1","minor":"37","gitVersion":"v1.37.1"}`))
		return
	}
	list := s.list(r.URL.Path)
	query := r.URL.Query()
	switch {
	case r.Method != http.MethodGet || list == nil:
		answer(w, http.StatusNotFound, metav1.StatusReasonNotFound)
	case query.Get("watch") == "":
		_ = json.NewEncoder(w).Encode(list)
	case query.Get("sendInitialEvents") != "":
		// The client then lists.
		answer(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
	default:
		s.watch(w, r)
	}
}

func answer(w http.ResponseWriter, code int32, reason metav1.StatusReason) {
	w.WriteHeader(int(code))
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: code, Reason: reason,
	})
}

// list returns what is at /api/v1/pods or /apis/apps/v1/replicasets, say, or nil.
func (s *apiServer) list(path string) runtime.Object {
	parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
	gv := schema.GroupVersion{}
	switch {
	case len(parts) == 3 && parts[0] == "api":
		gv.Version = parts[1]
	case len(parts) == 4 && parts[0] == "apis":
		gv.Group, gv.Version = parts[1], parts[2]
	default:
		return nil
	}
	name := parts[len(parts)-1]
	if list := s.lists[name]; list != nil {
		return list
	}
	for kind := range scheme.Scheme.KnownTypes(gv) {
		plural, _ := meta.UnsafeGuessKindToResource(gv.WithKind(kind))
		if plural.Resource != name {
			continue
		}
		list := &metav1.List{TypeMeta: metav1.TypeMeta{Kind: kind + "List", APIVersion: gv.String()}, Items: []runtime.RawExtension{}}
		list.ResourceVersion = "1"
		return list
	}
	return nil
}

func (s *apiServer) watch(w http.ResponseWriter, r *http.Request) {
	w.(http.Flusher).Flush()
	more := s.more
	if !strings.HasSuffix(r.URL.Path, "/nodes") {
		more = nil
	}
	for {
		select {
		case <-r.Context().Done():
			return
		case n := <-more:
			raw, err := json.Marshal(n)
			if err != nil {
				return
			}
			_ = json.NewEncoder(w).Encode(metav1.WatchEvent{Type: "ADDED", Object: runtime.RawExtension{Raw: raw}})
			w.(http.Flusher).Flush()
		}
	}
}

// syncedLog collects what the program logs while it runs.
type syncedLog struct {
	mu   sync.Mutex // guards text
	text strings.Builder
}

func (l *syncedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *syncedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// line returns the first line that has all parts, or nothing.
func (l *syncedLog) line(parts ...string) string {
	for line := range strings.Lines(l.String()) {
		all := true
		for _, part := range parts {
			all = all && strings.Contains(line, part)
		}
		if all {
			return line
		}
	}
	return ""
}

// TestDumpOnSignal: on SIGUSR2 the log has the dump of kube-scheduler's cache and that of the ledger, the
// comparison of the ledger with the informers and, from the next scheduling cycle on, with the scheduler's
// snapshot.
func TestDumpOnSignal(t *testing.T) {
	t.Parallel()
	node := func(name, version, cpus string) *v1.Node {
		cpu, memory, pods := resource.MustParse(cpus), resource.MustParse("8Gi"), resource.MustParse("110")
		return &v1.Node{
			TypeMeta:   metav1.TypeMeta{Kind: "Node", APIVersion: "v1"},
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), ResourceVersion: version},
			Status:     v1.NodeStatus{Allocatable: v1.ResourceList{v1.ResourceCPU: cpu, v1.ResourceMemory: memory, v1.ResourcePods: pods}},
		}
	}
	pod := func(name, nodeName, cpu string) v1.Pod {
		p := v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name), ResourceVersion: "1"}}
		p.Spec.NodeName, p.Spec.SchedulerName = nodeName, v1.DefaultSchedulerName
		p.Spec.Containers = []v1.Container{{Name: "c", Image: "i", Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}}}}
		return p
	}
	running, pending := pod("running", "node-1", "1500m"), pod("pending", "", "64")
	server := &apiServer{
		lists: map[string]runtime.Object{
			"nodes": &v1.NodeList{TypeMeta: metav1.TypeMeta{Kind: "NodeList", APIVersion: "v1"}, ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: []v1.Node{*node("node-1", "1", "4")}},
			"pods":  &v1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: []v1.Pod{running, pending}},
		},
		more: make(chan *v1.Node, 1),
	}
	listener := httptest.NewServer(server)
	t.Cleanup(listener.Close)
	config := writeConfig(t, writeKubeconfig(t, listener.URL), `profiles:
- plugins:
    multiPoint: {enabled: [{name: ReserveCache}]}
`)
	ctx, cancel := context.WithTimeout(t.Context(), processTimeout)
	defer cancel()
	cmd, _, _ := program(ctx, "--config", config, "--secure-port=0", "--v=2")
	log := &syncedLog{}
	cmd.Stderr = log
	require.NoError(t, cmd.Start())
	logged := func(parts ...string) {
		t.Helper()
		require.Eventually(t, func() bool { return log.line(parts...) != "" }, processTimeout, 20*time.Millisecond, "%q is not in the log:\n%s", parts, log)
	}
	logged("Unable to schedule pod", "default/pending")
	require.Empty(t, log.line("Dump of"))

	require.NoError(t, cmd.Process.Signal(syscall.SIGUSR2))
	logged("Dump of cached NodeInfo")
	logged("Node name: node-1")
	logged("Dump of the ledger", `node="node-1"`, `"MilliCPU":1500`, "default/running")
	logged("Compared the ledger with the informers", `nodes=1 pods=1 differences=[]`)
	require.Empty(t, log.line("Compared the ledger with the scheduler's snapshot"), "there was no cycle since")

	// A node comes that is large enough for the pod to be tried again, and that it does not tolerate. The scheduler may
	// have heard of it before the ledger has, which is a difference that has not settled, and no drift.
	second := node("node-2", "2", "128")
	second.Spec.Taints = []v1.Taint{{Key: "test", Effect: v1.TaintEffectNoSchedule}}
	server.more <- second
	logged("Compared the ledger with the scheduler's snapshot", "nodes=2 unsettled=", "drift=null")

	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, cmd.Wait(), "%s", log)
}
