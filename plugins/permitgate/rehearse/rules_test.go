package rehearse

import (
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
)

// rule returns one about the creation of a resource, changed by f.
func rule(resource string, f ...func(*admissionv1.RuleWithOperations)) admissionv1.RuleWithOperations {
	r := admissionv1.RuleWithOperations{
		Operations: []admissionv1.OperationType{admissionv1.Create},
		Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{resource}},
	}
	for _, change := range f {
		change(&r)
	}
	return r
}

func TestRuleMatches(t *testing.T) {
	type rules = admissionv1.RuleWithOperations
	for name, tt := range map[string]struct {
		rule rules
		want bool
	}{
		"the subresource":              {rule("pods/binding"), true},
		"any subresource of pods":      {rule("pods/*"), true},
		"binding of anything":          {rule("*/binding"), true},
		"everything":                   {rule("*/*"), true},
		"one of several":               {rule("services", func(r *rules) { r.Resources = append(r.Resources, "pods/binding") }), true},
		"the star means no":            {rule("*"), false},
		"pods":                         {rule("pods"), false},
		"another subresource":          {rule("pods/status"), false},
		"of another resource":          {rule("services/binding"), false},
		"the other way to bind":        {rule("bindings"), false}, // POST bindings, which kube-scheduler does not use
		"a prefix is no match":         {rule("pods/bind"), false},
		"any operation":                {rule("pods/binding", func(r *rules) { r.Operations = []admissionv1.OperationType{admissionv1.OperationAll} }), true},
		"another operation":            {rule("pods/binding", func(r *rules) { r.Operations = []admissionv1.OperationType{admissionv1.Update, admissionv1.Connect} }), false},
		"any group":                    {rule("pods/binding", func(r *rules) { r.APIGroups = []string{"*"} }), true},
		"another group":                {rule("pods/binding", func(r *rules) { r.APIGroups = []string{"apps"} }), false},
		"any version":                  {rule("pods/binding", func(r *rules) { r.APIVersions = []string{"*"} }), true},
		"another version":              {rule("pods/binding", func(r *rules) { r.APIVersions = []string{"v1beta1"} }), false},
		"namespaced resources":         {rule("pods/binding", func(r *rules) { r.Scope = ptr.To(admissionv1.NamespacedScope) }), true},
		"resources of any scope":       {rule("pods/binding", func(r *rules) { r.Scope = ptr.To(admissionv1.AllScopes) }), true},
		"resources of the cluster":     {rule("*/*", func(r *rules) { r.Scope = ptr.To(admissionv1.ClusterScope) }), false},
		"nothing":                      {rules{}, false},
		"no resource is a subresource": {rule("pods/"), false},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, tt.want, ruleMatches(&tt.rule)) })
	}
}

func named(rules ...admissionv1.RuleWithOperations) []admissionv1.NamedRuleWithOperations {
	var out []admissionv1.NamedRuleWithOperations
	for _, r := range rules {
		out = append(out, admissionv1.NamedRuleWithOperations{RuleWithOperations: r})
	}
	return out
}

func policy(name string, constraints *admissionv1.MatchResources) *admissionv1.ValidatingAdmissionPolicy {
	return &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.ValidatingAdmissionPolicySpec{MatchConstraints: constraints}}
}

func policyBinding(policy string, resources *admissionv1.MatchResources, actions ...admissionv1.ValidationAction) *admissionv1.ValidatingAdmissionPolicyBinding {
	return &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "of-" + policy},
		Spec:       admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: policy, MatchResources: resources, ValidationActions: actions},
	}
}

func TestJudges(t *testing.T) {
	binds := &admissionv1.MatchResources{ResourceRules: named(rule("pods/binding"))}
	excluding := func(r admissionv1.NamedRuleWithOperations) *admissionv1.MatchResources {
		return &admissionv1.MatchResources{ResourceRules: named(rule("*/*")), ExcludeResourceRules: []admissionv1.NamedRuleWithOperations{r}}
	}
	deny := admissionv1.Deny
	for name, tt := range map[string]struct {
		config admissionConfig
		want   []string
	}{
		"nothing": {admissionConfig{}, nil},
		"a policy and its binding": {admissionConfig{
			policies:       []*admissionv1.ValidatingAdmissionPolicy{policy("p", binds)},
			policyBindings: []*admissionv1.ValidatingAdmissionPolicyBinding{policyBinding("p", nil, deny)},
		}, []string{"ValidatingAdmissionPolicy p of-p"}},
		"a policy without one": {admissionConfig{policies: []*admissionv1.ValidatingAdmissionPolicy{policy("p", binds)}}, nil},
		"a binding of another": {admissionConfig{
			policies:       []*admissionv1.ValidatingAdmissionPolicy{policy("p", binds)},
			policyBindings: []*admissionv1.ValidatingAdmissionPolicyBinding{policyBinding("q", nil, deny)},
		}, nil},
		"one that only warns": {admissionConfig{
			policies:       []*admissionv1.ValidatingAdmissionPolicy{policy("p", binds)},
			policyBindings: []*admissionv1.ValidatingAdmissionPolicyBinding{policyBinding("p", nil, admissionv1.Warn, admissionv1.Audit)},
		}, nil},
		"a binding for something else": {admissionConfig{
			policies: []*admissionv1.ValidatingAdmissionPolicy{policy("p", binds)},
			policyBindings: []*admissionv1.ValidatingAdmissionPolicyBinding{
				policyBinding("p", &admissionv1.MatchResources{ResourceRules: named(rule("services"))}, deny),
			},
		}, nil},
		"a binding that only selects namespaces": {admissionConfig{
			policies: []*admissionv1.ValidatingAdmissionPolicy{policy("p", binds)},
			policyBindings: []*admissionv1.ValidatingAdmissionPolicyBinding{
				policyBinding("p", &admissionv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{}}, deny),
			},
		}, []string{"ValidatingAdmissionPolicy p of-p"}},
		"a policy without rules": {admissionConfig{
			policies:       []*admissionv1.ValidatingAdmissionPolicy{policy("p", nil), policy("q", &admissionv1.MatchResources{})},
			policyBindings: []*admissionv1.ValidatingAdmissionPolicyBinding{policyBinding("p", nil, deny), policyBinding("q", nil, deny)},
		}, nil},
		"binds are excluded": {admissionConfig{
			policies:       []*admissionv1.ValidatingAdmissionPolicy{policy("p", excluding(named(rule("pods/*"))[0]))},
			policyBindings: []*admissionv1.ValidatingAdmissionPolicyBinding{policyBinding("p", nil, deny)},
		}, nil},
		"binds of some pods are excluded": {admissionConfig{
			policies: []*admissionv1.ValidatingAdmissionPolicy{policy("p", excluding(admissionv1.NamedRuleWithOperations{
				ResourceNames: []string{"launcher"}, RuleWithOperations: rule("pods/binding"),
			}))},
			policyBindings: []*admissionv1.ValidatingAdmissionPolicyBinding{policyBinding("p", nil, deny)},
		}, []string{"ValidatingAdmissionPolicy p of-p"}},
		"webhooks": {admissionConfig{
			validatingWebhooks: []*admissionv1.ValidatingWebhookConfiguration{{
				ObjectMeta: metav1.ObjectMeta{Name: "v"},
				Webhooks: []admissionv1.ValidatingWebhook{
					{Name: "pods", Rules: []admissionv1.RuleWithOperations{rule("pods")}},
					{Name: "all", Rules: []admissionv1.RuleWithOperations{rule("services"), rule("*/*")}},
				},
			}},
			mutatingWebhooks: []*admissionv1.MutatingWebhookConfiguration{{
				ObjectMeta: metav1.ObjectMeta{Name: "m"},
				Webhooks:   []admissionv1.MutatingWebhook{{Name: "binds", Rules: []admissionv1.RuleWithOperations{rule("pods/binding")}}},
			}},
		}, []string{"MutatingWebhookConfiguration m binds", "ValidatingWebhookConfiguration v all"}},
		"a mutating policy": {admissionConfig{
			mutations: []*admissionv1.MutatingAdmissionPolicy{{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: admissionv1.MutatingAdmissionPolicySpec{MatchConstraints: binds}}},
			mutationBindings: []*admissionv1.MutatingAdmissionPolicyBinding{{
				ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: "p"},
			}},
		}, []string{"MutatingAdmissionPolicy p b"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, j := range tt.config.judges() {
				got = append(got, j.name)
			}
			require.Equal(t, tt.want, got)
		})
	}
}

func TestJudgesNamespace(t *testing.T) {
	selects := func(key, value string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
	}
	others := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: "kubernetes.io/metadata.name", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"kube-system"}},
	}}
	for name, tt := range map[string]struct {
		selectors []*metav1.LabelSelector
		set       labels.Set
		want      bool
	}{
		"no selector":             {nil, nil, true},
		"an empty one":            {[]*metav1.LabelSelector{nil, {}}, nil, true},
		"it matches":              {[]*metav1.LabelSelector{selects("team", "ml")}, labels.Set{"team": "ml"}, true},
		"it does not":             {[]*metav1.LabelSelector{selects("team", "ml")}, labels.Set{"team": "web"}, false},
		"both":                    {[]*metav1.LabelSelector{selects("team", "ml"), others}, labels.Set{"team": "ml"}, true},
		"one of two":              {[]*metav1.LabelSelector{selects("team", "ml"), others}, labels.Set{"team": "ml", "kubernetes.io/metadata.name": "kube-system"}, false},
		"one that is no selector": {[]*metav1.LabelSelector{{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Sometimes"}}}}, nil, true},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, tt.want, newJudge("j", tt.selectors...).judgesNamespace(tt.set)) })
	}
}
