package rehearse

import (
	"cmp"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// judge is something in the API server that may refuse the bind of a pod: a webhook, or an admission policy
// with a binding.
type judge struct {
	name string
	// namespaces are selectors of namespaces that must all match; one that cannot be parsed matches all.
	namespaces []string
}

// admissionConfig has the objects that decide which requests are judged by which policy or webhook.
type admissionConfig struct {
	validatingWebhooks []*admissionv1.ValidatingWebhookConfiguration
	mutatingWebhooks   []*admissionv1.MutatingWebhookConfiguration
	policies           []*admissionv1.ValidatingAdmissionPolicy
	policyBindings     []*admissionv1.ValidatingAdmissionPolicyBinding
	mutations          []*admissionv1.MutatingAdmissionPolicy
	mutationBindings   []*admissionv1.MutatingAdmissionPolicyBinding
}

// judges lists who judges the creation of pods/binding, sorted.
//
// Selectors of objects and match conditions are taken to match: they look at the single Binding. A policy
// without a binding judges nothing, and one whose bindings only warn and audit refuses nothing. A mutating
// webhook or policy counts because it can fail too, and because validation sees its changes.
func (c admissionConfig) judges() []judge {
	var js []judge
	for _, config := range c.validatingWebhooks {
		for i := range config.Webhooks {
			if w := &config.Webhooks[i]; anyRuleMatches(w.Rules) {
				js = append(js, newJudge("ValidatingWebhookConfiguration "+config.Name+" "+w.Name, w.NamespaceSelector))
			}
		}
	}
	for _, config := range c.mutatingWebhooks {
		for i := range config.Webhooks {
			if w := &config.Webhooks[i]; anyRuleMatches(w.Rules) {
				js = append(js, newJudge("MutatingWebhookConfiguration "+config.Name+" "+w.Name, w.NamespaceSelector))
			}
		}
	}
	for _, policy := range c.policies {
		if !resourcesMatch(policy.Spec.MatchConstraints, false) {
			continue
		}
		for _, b := range c.policyBindings {
			if b.Spec.PolicyName == policy.Name && slices.Contains(b.Spec.ValidationActions, admissionv1.Deny) && resourcesMatch(b.Spec.MatchResources, true) {
				js = append(js, newJudge("ValidatingAdmissionPolicy "+policy.Name+" "+b.Name, namespacesOf(policy.Spec.MatchConstraints), namespacesOf(b.Spec.MatchResources)))
			}
		}
	}
	for _, policy := range c.mutations {
		if !resourcesMatch(policy.Spec.MatchConstraints, false) {
			continue
		}
		for _, b := range c.mutationBindings {
			if b.Spec.PolicyName == policy.Name && resourcesMatch(b.Spec.MatchResources, true) {
				js = append(js, newJudge("MutatingAdmissionPolicy "+policy.Name+" "+b.Name, namespacesOf(policy.Spec.MatchConstraints), namespacesOf(b.Spec.MatchResources)))
			}
		}
	}
	slices.SortFunc(js, func(a, b judge) int {
		return cmp.Or(cmp.Compare(a.name, b.name), slices.Compare(a.namespaces, b.namespaces))
	})
	return js
}

func newJudge(name string, namespaces ...*metav1.LabelSelector) judge {
	j := judge{name: name}
	for _, selector := range namespaces {
		if selector != nil && (len(selector.MatchLabels) > 0 || len(selector.MatchExpressions) > 0) {
			j.namespaces = append(j.namespaces, metav1.FormatLabelSelector(selector))
		}
	}
	return j
}

// judgesNamespace reports whether a namespace with these labels is judged.
func (j judge) judgesNamespace(set labels.Set) bool {
	for _, text := range j.namespaces {
		if selector, err := labels.Parse(text); err == nil && !selector.Matches(set) {
			return false
		}
	}
	return true
}

func namespacesOf(m *admissionv1.MatchResources) *metav1.LabelSelector {
	if m == nil {
		return nil
	}
	return m.NamespaceSelector
}

// resourcesMatch reports whether the creation of pods/binding is among the resources. Without rules a policy
// matches nothing, and a binding leaves its policy as it is.
func resourcesMatch(m *admissionv1.MatchResources, withoutRules bool) bool {
	if m == nil {
		return withoutRules
	}
	for i := range m.ExcludeResourceRules {
		// A rule that excludes some names does not exclude all pods.
		if rule := &m.ExcludeResourceRules[i]; len(rule.ResourceNames) == 0 && ruleMatches(&rule.RuleWithOperations) {
			return false
		}
	}
	if len(m.ResourceRules) == 0 {
		return withoutRules
	}
	for i := range m.ResourceRules {
		if ruleMatches(&m.ResourceRules[i].RuleWithOperations) {
			return true
		}
	}
	return false
}

func anyRuleMatches(rules []admissionv1.RuleWithOperations) bool {
	for i := range rules {
		if ruleMatches(&rules[i]) {
			return true
		}
	}
	return false
}

// ruleMatches reports whether a rule is about the creation of pods/binding. A resource without a slash, also
// "*", does not mean subresources.
func ruleMatches(r *admissionv1.RuleWithOperations) bool {
	if r.Scope != nil && *r.Scope == admissionv1.ClusterScope {
		return false
	}
	if !slices.Contains(r.Operations, admissionv1.Create) && !slices.Contains(r.Operations, admissionv1.OperationAll) {
		return false
	}
	if !slices.Contains(r.APIGroups, "") && !slices.Contains(r.APIGroups, "*") {
		return false
	}
	if !slices.Contains(r.APIVersions, "v1") && !slices.Contains(r.APIVersions, "*") {
		return false
	}
	return slices.ContainsFunc(r.Resources, func(pattern string) bool {
		resource, subresource, _ := strings.Cut(pattern, "/")
		return (resource == "*" || resource == "pods") && (subresource == "*" || subresource == "binding")
	})
}
