package rehearse

import (
	"errors"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"

	"zonewise.dev/plugins/permitgate/gang"
	"zonewise.dev/plugins/permitgate/podgroup"
)

func TestOutcomeOfARehearsal(t *testing.T) {
	pods := v1.Resource("pods")
	status := func(code int32, message string) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Message: message}}
	}
	for name, tt := range map[string]struct {
		err  error
		want outcome
	}{
		"accepted":                   {nil, passed},
		"a policy says no":           {apierrors.NewForbidden(pods, "p", errors.New("denied")), denied},
		"a webhook without reason":   {status(http.StatusBadRequest, `admission webhook "w" denied the request`), denied},
		"it is bound already":        {apierrors.NewConflict(pods, "p", errors.New("assigned")), denied},
		"it is gone":                 {apierrors.NewNotFound(pods, "p"), denied},
		"a webhook that is old":      {apierrors.NewBadRequest(`admission webhook "w" does not support dry run`), passed},
		"a webhook out of reach":     {apierrors.NewInternalError(errors.New("failed calling webhook")), unanswered},
		"too busy":                   {apierrors.NewTooManyRequestsError("later"), unanswered},
		"a timeout":                  {apierrors.NewTimeoutError("slow", 1), unanswered},
		"the server is out of reach": {errors.New("connection refused"), unanswered},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, tt.want, outcomeOf(tt.err)) })
	}
}

// gangs has one pod to rehearse, and takes the results.
type gangs struct {
	mu      sync.Mutex // guards what follows
	pod     *v1.Pod
	results []string
}

func (g *gangs) Rehearsing(podgroup.ID, gang.Rehearsal) (*v1.Pod, string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.pod, "node-1"
}

func (g *gangs) Rehearsed(_ podgroup.ID, _ gang.Rehearsal, refused string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.pod = nil
	g.results = append(g.results, refused)
}

func (g *gangs) told() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.results
}

// TestARehearsalIsABind: the Binding is sent, tried again when there is no answer, and the last answer counts.
func TestARehearsalIsABind(t *testing.T) {
	busy := apierrors.NewTooManyRequestsError("later")
	for name, tt := range map[string]struct {
		answers []error
		want    string
	}{
		"accepted":            {[]error{nil}, ""},
		"refused":             {[]error{apierrors.NewForbidden(v1.Resource("pods"), "p", errors.New("no"))}, "would not bind the pod to node node-1"},
		"accepted in the end": {[]error{busy, busy, nil}, ""},
		"never answered":      {[]error{busy, busy, busy}, "did not answer"},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewSimpleClientset()
			var mu sync.Mutex // guards sent
			var sent []clienttesting.CreateActionImpl
			client.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
				create, ok := action.(clienttesting.CreateActionImpl)
				if !ok || create.GetSubresource() != "binding" {
					return false, nil, nil
				}
				mu.Lock()
				defer mu.Unlock()
				sent = append(sent, create)
				return true, nil, tt.answers[len(sent)-1]
			})
			g := &gangs{pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "p", UID: "u"}}}
			clock := clocktesting.NewFakeClock(time.Unix(1_000_000, 0))
			r := New(clock, g)
			r.Begin(podgroup.ID{NamespacedName: types.NamespacedName{Namespace: "ml", Name: "g"}}, gang.Rehearsal{UID: "u", Number: 1})
			require.True(t, r.Idle(), "a process that does not lead sends nothing")
			r.Lead(t.Context(), client)
			require.Eventually(t, func() bool {
				if r.Idle() {
					clock.Step(retryIntervalLimit)
				}
				return len(g.told()) == 1
			}, time.Minute, time.Millisecond)
			require.Contains(t, g.told()[0], tt.want)
			if tt.want == "" {
				require.Empty(t, g.told()[0])
			}
			mu.Lock()
			defer mu.Unlock()
			require.Len(t, sent, len(tt.answers))
			for _, create := range sent {
				binding, ok := create.GetObject().(*v1.Binding)
				require.True(t, ok)
				require.Equal(t, "node-1", binding.Target.Name)
				require.EqualValues(t, "u", binding.UID)
			}
		})
	}
}
