package parts

import (
	"cmp"
	"os"
	"time"

	v1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NewEvent returns an event of a part of the controller about an object. It lacks its name, and what it says.
func NewEvent(part string, about v1.ObjectReference, now time.Time) *eventsv1.Event {
	host, _ := os.Hostname()
	return &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: cmp.Or(about.Namespace, metav1.NamespaceDefault)},
		EventTime:  metav1.NewMicroTime(now), Regarding: about,
		ReportingController: "zonewise.dev/" + part, ReportingInstance: cmp.Or(host, "unknown"),
	}
}
