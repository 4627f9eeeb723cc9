package chaos

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"zonewise.dev/test/chaos/history"
)

// TestConditionsOfKubeScheduler: of native PodGroups they are told from ours by their types.
func TestConditionsOfKubeScheduler(t *testing.T) {
	const native, other = "/apis/scheduling.k8s.io/v1beta1/", "/apis/scheduling.x-k8s.io/v1alpha1/"
	for _, c := range []struct {
		group, condition string
		want             bool
	}{
		{native, "PodGroupInitiallyScheduled", true}, {native, "zonewise.dev/Released", false}, {other, "PodGroupInitiallyScheduled", false},
	} {
		q := history.Request{Verb: "patch", Resource: "podgroups", Subresource: "status"}
		require.NoError(t, detail(&q, &auditv1.Event{
			RequestURI:    c.group + "namespaces/chaos/podgroups/gang-1/status",
			RequestObject: &runtime.Unknown{Raw: []byte(`{"status":{"conditions":[{"type":"` + c.condition + `","status":"True"}]}}`)},
		}))
		require.Equal(t, c.want, q.KubeSchedulers, "%s of %s", c.condition, c.group)
	}
}

// TestDryRuns: what is only tried says so in the address of the request, or, when something is deleted, in its options.
func TestDryRuns(t *testing.T) {
	for name, c := range map[string]struct {
		q      history.Request
		asked  string
		dryRun bool
	}{
		"deletion":             {history.Request{Verb: "delete", Resource: "pods"}, `{"kind":"DeleteOptions","preconditions":{"uid":"a"}}`, false},
		"deletion, tried":      {history.Request{Verb: "delete", Resource: "pods"}, `{"kind":"DeleteOptions","dryRun":["All"]}`, true},
		"eviction":             {history.Request{Verb: "create", Resource: "pods", Subresource: "eviction"}, `{"kind":"Eviction","deleteOptions":{}}`, false},
		"eviction, tried":      {history.Request{Verb: "create", Resource: "pods", Subresource: "eviction"}, `{"kind":"Eviction","deleteOptions":{"dryRun":["All"]}}`, true},
		"tried by its address": {history.Request{Verb: "patch", Resource: "pods", DryRun: true}, `{}`, true},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, detail(&c.q, &auditv1.Event{RequestObject: &runtime.Unknown{Raw: []byte(c.asked)}}))
			require.Equal(t, c.dryRun, c.q.DryRun)
		})
	}
}
