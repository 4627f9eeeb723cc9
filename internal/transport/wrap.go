package transport

import (
	"net/http"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Handle is the part of the framework's handle that Wrap needs.
type Handle interface {
	ClientSet() kubernetes.Interface
	KubeConfig() *rest.Config
}

// Wrap puts a RoundTripper around the transport of the scheduler's clientset, and of every client that is made from the
// scheduler's configuration after the call. Both must be the scheduler's own and not in use yet, as they are in a
// plugin's factory under app.NewSchedulerCommand. It reports whether there is an API server to talk to; otherwise it
// does nothing.
func Wrap(h Handle, around func(http.RoundTripper) http.RoundTripper) bool {
	config := h.KubeConfig()
	if config == nil {
		return false
	}
	client, ok := h.ClientSet().CoreV1().RESTClient().(*rest.RESTClient)
	if !ok || client == nil || client.Client == nil {
		return false
	}
	next := client.Client.Transport
	if next == nil {
		next = http.DefaultTransport
	}
	client.Client.Transport = around(next) // all groups of a clientset have one http.Client
	config.Wrap(around)
	return true
}
