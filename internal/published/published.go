// Package published reads what the scheduler of this process has published about its configuration, under /configz. A
// plugin gets no other view of it.
package published

import (
	"bytes"
	"encoding/json"
	"net/http"
	"time"

	"k8s.io/component-base/configz"
	"k8s.io/utils/ptr"
)

// configuration is the part of a KubeSchedulerConfiguration that is used here.
type configuration struct {
	InitialBackoff *int64 `json:"podInitialBackoffSeconds"`
	LongestBackoff *int64 `json:"podMaxBackoffSeconds"`
}

// PodBackoff returns the initial and the longest backoff of a pod in the scheduling queue; kube-scheduler's defaults in
// a process that publishes none. They are known once the scheduler starts its informers.
func PodBackoff() (initial, longest time.Duration) {
	c := read()
	return time.Duration(ptr.Deref(c.InitialBackoff, 1)) * time.Second, time.Duration(ptr.Deref(c.LongestBackoff, 10)) * time.Second
}

func read() configuration {
	var reader handlerReader
	configz.InstallHandler(&reader)
	if reader.handler == nil {
		return configuration{}
	}
	request, err := http.NewRequest(http.MethodGet, configz.DefaultConfigzPath, http.NoBody)
	if err != nil {
		return configuration{}
	}
	response := memoryResponse{header: http.Header{}}
	reader.handler.ServeHTTP(&response, request)
	var components map[string]configuration
	if err := json.Unmarshal(response.body.Bytes(), &components); err != nil {
		return configuration{}
	}
	return components["componentconfig"]
}

// handlerReader takes configz's handler, the one way to read what the process has published.
type handlerReader struct{ handler http.Handler }

func (r *handlerReader) Handle(_ string, handler http.Handler) { r.handler = handler }

// memoryResponse keeps a response in memory.
type memoryResponse struct {
	header http.Header
	body   bytes.Buffer
}

func (r *memoryResponse) Header() http.Header         { return r.header }
func (r *memoryResponse) Write(p []byte) (int, error) { return r.body.Write(p) }
func (r *memoryResponse) WriteHeader(int)             {}
