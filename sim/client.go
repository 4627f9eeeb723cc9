package sim

import (
	"context"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typedv1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// This file has the scheduler's client. Its requests go through the API of the copy as if that were elsewhere, but for
// binds: there is one for each pod, and to encode and decode them takes longer than all else that they do.

// directClient is a client that binds without a request.
type directClient struct {
	kubernetes.Interface
	api api
}

// CoreV1 implements kubernetes.Interface.
func (c directClient) CoreV1() typedv1.CoreV1Interface {
	return directCoreClient{c.Interface.CoreV1(), c.api}
}

type directCoreClient struct {
	typedv1.CoreV1Interface
	api api
}

// Pods implements typedv1.PodsGetter.
func (c directCoreClient) Pods(namespace string) typedv1.PodInterface {
	return directPodClient{c.CoreV1Interface.Pods(namespace), c.api, namespace}
}

type directPodClient struct {
	typedv1.PodInterface
	api       api
	namespace string
}

// Bind implements typedv1.PodExpansion.
func (c directPodClient) Bind(_ context.Context, binding *v1.Binding, options metav1.CreateOptions) error {
	defer c.api.beginRequest()()
	return c.api.handleBinding(c.namespace+"/"+binding.Name, binding, len(options.DryRun) > 0)
}
