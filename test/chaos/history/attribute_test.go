package history

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestAttributeBinds: a bind is that of the request that was accepted; of one that failed inside of the API server only
// if there is none.
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

// TestAttributeDeletions: a deletion is that of a request that came before it was seen, also of one that was cancelled.
// A patch deletes nothing, though it may answer with the deletion's revision.
func TestAttributeDeletions(t *testing.T) {
	at := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	const before, after = -time.Millisecond, time.Millisecond
	ask := func(writer, verb string, received time.Duration, code int32) Request {
		return Request{Received: at.Add(received), Answered: at.Add(received + time.Millisecond), Writer: writer, Verb: verb, Resource: "pods", Namespace: "chaos", Name: "web", Code: code, Revision: 2}
	}
	for _, c := range []struct {
		name     string
		requests []Request
		grace    int64
		writer   string
	}{
		{"accepted", []Request{ask("one", "delete", before, 200)}, 30, "one"},
		{"asked for again", []Request{ask("one", "delete", before, 200), ask("two", "delete", after, 200)}, 30, "one"},
		{"asked for again when the first was cancelled", []Request{ask("one", "delete", before, 504), ask("two", "delete", after, 200)}, 30, "one"},
		{"refused", []Request{ask("one", "delete", before, 403)}, 30, ""},
		{"failed, and then deleted by a controller", []Request{ask("one", "delete", before, 504)}, 0, ""},
		{"of another program", []Request{ask("one", "patch", before, 200), ask("two", "patch", after, 200), ask("two", "delete", after, 200)}, 30, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			pod := func(deletion *metav1.Time) *v1.Pod {
				return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "chaos", Name: "web", UID: "web", DeletionTimestamp: deletion, DeletionGracePeriodSeconds: &c.grace}}
			}
			r := &Record{Changes: []Change{{Revision: 1, Time: at.Add(-time.Minute), Pod: pod(nil)}, {Revision: 2, Time: at, Pod: pod(&metav1.Time{Time: at})}}, Requests: c.requests}
			r.Attribute()
			require.Equal(t, c.writer, r.Changes[1].Writer)
		})
	}
}

// TestAttributePatches: a patch that changes nothing is not the writer of what it answers with.
func TestAttributePatches(t *testing.T) {
	at := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "chaos", Name: "web", UID: "web"}}
	patch := func(writer string, received time.Duration) Request {
		return Request{Received: at.Add(received), Answered: at.Add(time.Second), Writer: writer, Verb: "patch", Resource: "pods", Subresource: "status", Name: "web", Code: 200, Revision: 1}
	}
	r := &Record{Changes: []Change{{Revision: 1, Time: at, Pod: pod}}, Requests: []Request{patch("two", time.Millisecond)}}
	r.Attribute()
	require.Empty(t, r.Changes[0].Writer)
	r.Requests = append(r.Requests, patch("one", -time.Millisecond))
	r.Attribute()
	require.Equal(t, "one", r.Changes[0].Writer)
}
