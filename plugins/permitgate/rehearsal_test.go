package permitgate

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
)

func TestOutcomeOfARehearsal(t *testing.T) {
	pods := v1.Resource("pods")
	status := func(code int32, message string) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Message: message}}
	}
	for name, tt := range map[string]struct {
		err  error
		want rehearsalOutcome
	}{
		"accepted":                   {nil, rehearsalPassed},
		"a policy says no":           {apierrors.NewForbidden(pods, "p", errors.New("denied")), rehearsalRefused},
		"a webhook without reason":   {status(http.StatusBadRequest, `admission webhook "w" denied the request`), rehearsalRefused},
		"it is bound already":        {apierrors.NewConflict(pods, "p", errors.New("assigned")), rehearsalRefused},
		"it is gone":                 {apierrors.NewNotFound(pods, "p"), rehearsalRefused},
		"a webhook that is old":      {apierrors.NewBadRequest(`admission webhook "w" does not support dry run`), rehearsalPassed},
		"a webhook out of reach":     {apierrors.NewInternalError(errors.New("failed calling webhook")), rehearsalUnanswered},
		"too busy":                   {apierrors.NewTooManyRequestsError("later"), rehearsalUnanswered},
		"a timeout":                  {apierrors.NewTimeoutError("slow", 1), rehearsalUnanswered},
		"the server is out of reach": {errors.New("connection refused"), rehearsalUnanswered},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, tt.want, outcomeOf(tt.err)) })
	}
}

// TestAdmissionWatch: what is judged follows the API server's objects, and changes are told.
func TestAdmissionWatch(t *testing.T) {
	ctx := t.Context()
	client := fake.NewClientset(
		&v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ml", Labels: map[string]string{"team": "ml"}}},
		&v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: map[string]string{"team": "web"}}},
	)
	factory := informers.NewSharedInformerFactory(client, 0)
	namespaces := factory.Core().V1().Namespaces().Lister()
	factory.StartWithContext(ctx)
	factory.WaitForCacheSync(ctx.Done())
	changes := make(chan struct{}, 100)
	w := watchAdmission(ctx, client, namespaces, func() { changes <- struct{}{} })
	<-changes // it has been read
	require.False(t, w.judged("ml"))

	p := policy("p", &admissionv1.MatchResources{
		ResourceRules: named(rule("pods/binding")), NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "ml"}},
	})
	_, err := client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Create(ctx, p, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Create(ctx, policyBinding("p", nil, admissionv1.Deny), metav1.CreateOptions{})
	require.NoError(t, err)
	<-changes
	require.True(t, w.judged("ml"))
	require.False(t, w.judged("web"))
	require.True(t, w.judged("not-seen-yet"))

	// What it asks for changes, which nobody here can read.
	p = p.DeepCopy()
	p.ResourceVersion = "2"
	p.Spec.Validations = []admissionv1.Validation{{Expression: "true"}}
	_, err = client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Update(ctx, p, metav1.UpdateOptions{})
	require.NoError(t, err)
	<-changes
	require.True(t, w.judged("ml"))
	require.NoError(t, client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Delete(ctx, "of-p", metav1.DeleteOptions{}))
	<-changes
	require.True(t, w.judged("ml"), "the API server may not know yet")
	require.Eventually(t, func() bool { return !w.judged("ml") }, 10*time.Second, 10*time.Millisecond)
}

// TestAdmissionThatCannotBeRead: what is not known is taken to be judged.
func TestAdmissionThatCannotBeRead(t *testing.T) {
	require.True(t, (&admissionWatch{}).judged("ml"))
}
