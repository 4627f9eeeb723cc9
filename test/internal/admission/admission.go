// Package admission has an API server refuse what a test wants to see refused.
package admission

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Refuse has an API server refuse an operation on a resource of the core group in a namespace, unless the validation
// holds. It takes effect some time after it returns, and ends with the test, or when the function that is returned is
// called.
func Refuse(
	t testing.TB, c client.Client, namespace string, operation admissionv1.OperationType, resource string, unless admissionv1.Validation,
) (lift func()) {
	t.Helper()
	name := metav1.ObjectMeta{Name: strings.ToLower(namespace + "-" + string(operation))}
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: name, Spec: admissionv1.ValidatingAdmissionPolicySpec{
		FailurePolicy: ptr.To(admissionv1.Fail),
		MatchConstraints: &admissionv1.MatchResources{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{v1.LabelMetadataName: namespace}},
			ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{operation},
				Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{resource}},
			}}},
		},
		Validations: []admissionv1.Validation{unless},
	}}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: name, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: policy.Name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
	}}
	for _, obj := range []client.Object{policy, binding} {
		require.NoError(t, c.Create(t.Context(), obj))
	}
	lift = func() {
		for _, obj := range []client.Object{binding, policy} {
			require.NoError(t, client.IgnoreNotFound(c.Delete(context.Background(), obj)))
		}
	}
	t.Cleanup(lift)
	return lift
}
