package command

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/cluster/census"
	"zonewise.dev/cmd/zonewise/explain"
	"zonewise.dev/internal/program"
	"zonewise.dev/test/clitest"
)

// eventReader lists events as an API server does, by the fields that name an object.
type eventReader struct {
	client.Client
	all []eventsv1.Event
}

func (r eventReader) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	o := (&client.ListOptions{}).ApplyOptions(options)
	out := list.(*eventsv1.EventList)
	for _, e := range r.all {
		if e.Namespace == o.Namespace && o.FieldSelector.Matches(fields.Set{"regarding.kind": e.Regarding.Kind, "regarding.name": e.Regarding.Name}) {
			out.Items = append(out.Items, e)
		}
	}
	return nil
}

// TestPodGroupsOfBothAPIs: where two have one name, explain asks which is meant.
func TestPodGroupsOfBothAPIs(t *testing.T) {
	c := clitest.Story()
	c.NativeGang("train", 2, "6", "", "")
	c.NativeGang("only", 1, "100", "")
	file := savedAs(t, c.Snapshot)
	for _, tc := range []struct {
		subject string
		code    int
		says    string
	}{
		{"podgroup/train", program.Misused, "there are two PodGroups train in namespace shop: want podgroup.scheduling.x-k8s.io/train or podgroup.scheduling.k8s.io/train"},
		{"podgroup.scheduling.k8s.io/train", program.OK, "Gang shop/train (native)"},
		{"podgroup.scheduling.x-k8s.io/train", program.OK, "Gang shop/train\n"},
		{"podgroup/only", program.OK, "Gang shop/only (native)"},
		{"podgroup.scheduling.x-k8s.io/only", program.Failed, "there is no PodGroup only in namespace shop"},
	} {
		code, out, errs := zonewise(t.Context(), "explain", tc.subject, "-n", "shop", "--snapshot", file)
		require.Equal(t, tc.code, code, errs)
		require.Contains(t, out+errs, tc.says)
	}
	require.Contains(t, ok(t, "status", "-n", "shop", "--snapshot", file), "shop/only (native)")
}

// TestEventsOfPodGroupsOfBothAPIs: what was said about one of two PodGroups of one name is not told of the other, and
// neither of what is no PodGroup.
func TestEventsOfPodGroupsOfBothAPIs(t *testing.T) {
	regarding := func(kind, apiVersion string) corev1.ObjectReference {
		return corev1.ObjectReference{Kind: kind, APIVersion: apiVersion, Namespace: "shop", Name: "train"}
	}
	var events eventReader
	for i, r := range []corev1.ObjectReference{
		regarding("PodGroup", "scheduling.x-k8s.io/v1alpha1"), regarding("PodGroup", "scheduling.k8s.io/v1beta1"),
		regarding("PodGroup", "scheduling.k8s.io/v1"), regarding("PodGroup", "scheduling.volcano.sh/v1beta1"), regarding("Pod", "v1"),
	} {
		events.all = append(events.all, eventsv1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprint("e", i)}, Regarding: r, Reason: "Said", Note: r.Kind + " of " + r.APIVersion,
		})
	}
	c := clitest.Story()
	c.NativeGang("train", 2, "6", "", "")
	x := &explanation{Explainer: explain.Explainer{Census: census.Take(c.Snapshot)}, client: events}
	said := func(kind string) (all []string) {
		r, err := x.explainSubject(t.Context(), kind, "shop", "train")
		require.NoError(t, err)
		for _, message := range r.Said {
			if strings.HasPrefix(message.Words, "Pod") {
				all = append(all, message.Words)
			}
		}
		return all
	}
	require.Equal(t, []string{"PodGroup of scheduling.x-k8s.io/v1alpha1"}, said(crdGroup))
	require.ElementsMatch(t, []string{"PodGroup of scheduling.k8s.io/v1beta1", "PodGroup of scheduling.k8s.io/v1"}, said(nativeGroup))
}

// A StatefulSet's pod has the name of the pod before it, whose events the API server keeps for an hour.
func TestEventsOfAFormerPod(t *testing.T) {
	c := clitest.New()
	c.Node("node-a", "a", "8", "8Gi")
	p := c.Pod("db-0", "", clitest.Plain("9", "1Gi"), nil)
	var events eventReader
	for note, uid := range map[string]types.UID{"of the pod before": "former", "of this pod": p.UID} {
		events.all = append(events.all, eventsv1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: "e-" + string(uid)}, Reason: "Said", Note: note,
			Regarding: corev1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: p.Namespace, Name: p.Name, UID: uid},
		})
	}
	x := &explanation{Explainer: explain.Explainer{Census: census.Take(c.Snapshot)}, client: events}
	r, err := x.explainSubject(t.Context(), "pod", p.Namespace, p.Name)
	require.NoError(t, err)
	require.Len(t, r.Said, 1)
	require.Equal(t, "of this pod", r.Said[0].Words, "events are the pod's by its UID, not by its name")
}
