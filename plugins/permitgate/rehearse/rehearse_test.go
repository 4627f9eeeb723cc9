package rehearse

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"

	"zonewise.dev/plugins/permitgate/gang"
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
	changes int
}

func (g *gangs) Rehearsing(types.NamespacedName, gang.Rehearsal) (*v1.Pod, string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.pod, "node-1"
}

func (g *gangs) Rehearsed(_ types.NamespacedName, _ gang.Rehearsal, refused string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.pod = nil
	g.results = append(g.results, refused)
}

func (g *gangs) AdmissionChanged() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.changes++
}

func (g *gangs) changed() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.changes
}

func (g *gangs) told() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.results
}

func namespaces(t *testing.T, client *fake.Clientset) corelisters.NamespaceLister {
	t.Helper()
	factory := informers.NewSharedInformerFactory(client, 0)
	lister := factory.Core().V1().Namespaces().Lister()
	factory.StartWithContext(t.Context())
	factory.WaitForCacheSync(t.Context().Done())
	return lister
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
			client := fake.NewClientset()
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
			r := New(Always, clock, nil, g)
			require.True(t, r.Needed("ml"))
			r.Begin(types.NamespacedName{Namespace: "ml", Name: "g"}, gang.Rehearsal{UID: "u", Turn: 1})
			require.True(t, r.Idle(), "a process that does not lead sends nothing")
			r.Lead(t.Context(), client)
			require.Eventually(t, func() bool {
				if r.Idle() {
					clock.Step(retryIntervalLimit)
				}
				return len(g.told()) == 1
			}, 10*time.Second, time.Millisecond)
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

func TestNever(t *testing.T) {
	r := New(Never, clocktesting.NewFakeClock(time.Unix(1_000_000, 0)), nil, &gangs{})
	r.Lead(t.Context(), fake.NewClientset())
	require.False(t, r.Needed("ml"))
	require.True(t, r.Idle())
}

// TestWhatIsJudged: in Auto what is rehearsed follows the API server's objects, for a while what they were before, and changes are
// passed on.
func TestWhatIsJudged(t *testing.T) {
	ctx := context.Background()
	client := fake.NewClientset(
		&v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ml", Labels: map[string]string{"team": "ml"}}},
		&v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: map[string]string{"team": "web"}}},
	)
	g := &gangs{}
	clock := clocktesting.NewFakeClock(time.Unix(1_000_000, 0))
	r := New(Auto, clock, namespaces(t, client), g)
	require.True(t, r.Needed("ml"), "nothing has been read")
	r.Lead(t.Context(), client)
	await := func(changes int) {
		t.Helper()
		require.Eventually(t, func() bool { return g.changed() >= changes && r.Idle() }, 10*time.Second, time.Millisecond)
	}
	await(1)
	require.False(t, r.Needed("ml"))

	policies, bindings := client.AdmissionregistrationV1().ValidatingAdmissionPolicies(), client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	p := policy("p", &admissionv1.MatchResources{
		ResourceRules: named(rule("pods/binding")), NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "ml"}},
	})
	_, err := policies.Create(ctx, p, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = bindings.Create(ctx, policyBinding("p", nil, admissionv1.Deny), metav1.CreateOptions{})
	require.NoError(t, err)
	await(2)
	require.True(t, r.Needed("ml"))
	require.False(t, r.Needed("web"))
	require.True(t, r.Needed("not-seen-yet"))

	// What it asks for changes, which cannot be read here.
	p = p.DeepCopy()
	p.ResourceVersion = "2"
	p.Spec.Validations = []admissionv1.Validation{{Expression: "true"}}
	_, err = policies.Update(ctx, p, metav1.UpdateOptions{})
	require.NoError(t, err)
	await(3)
	require.True(t, r.Needed("ml"))

	require.NoError(t, bindings.Delete(ctx, "of-p", metav1.DeleteOptions{}))
	await(4)
	require.True(t, r.Needed("ml"), "the API server may not know yet")
	clock.Step(admissionLag)
	await(5)
	require.False(t, r.Needed("ml"))
}

// TestPoliciesThatCannotBeRead: what is not known is taken to be judged.
func TestPoliciesThatCannotBeRead(t *testing.T) { require.True(t, (&watch{}).judged("ml")) }
