package history

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestAttributeBinds: a bind is that of the request that was accepted; of one that failed inside of the API server only if there is none.
func TestAttributeBinds(t *testing.T) {
	at := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	bind := func(writer string, code int32) Request {
		return Request{Received: at, Answered: at, Writer: writer, Verb: "create", Resource: "pods", Subresource: "binding", UID: "web", Node: "a1", Code: code}
	}
	for _, c := range []struct {
		name     string
		requests []Request
		writer   string
	}{
		{"accepted", []Request{bind("one", 201)}, "one"},
		{"accepted after one that failed", []Request{bind("one", 504), bind("two", 201)}, "two"},
		{"failed", []Request{bind("one", 504)}, "one"},
		{"refused", []Request{bind("one", 403)}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "web"}, Spec: v1.PodSpec{NodeName: "a1"}}
			r := &Record{Changes: []Change{{Revision: 1, Time: at, Pod: pod}}, Requests: c.requests}
			r.Attribute()
			require.Equal(t, c.writer, r.Changes[0].Writer)
		})
	}
}
