package integration

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/internal/shipped"
)

// TestSchedulerHasTheShippedPermissions asks the API server who the suite's schedulers are and what they may do, and
// requires that it is what manifests/rbac gives to the ServiceAccount, no less and no more, beside what every one may.
// All other tests of the package run with it: writeConfig sees to that.
func TestSchedulerHasTheShippedPermissions(t *testing.T) {
	cp := takeControlPlane(t)
	config, err := clientcmd.BuildConfigFromFlags("", cp.schedulerKubeconfig)
	require.NoError(t, err)
	scheduler := kubernetes.NewForConfigOrDie(config)
	self, err := scheduler.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Equal(t, shipped.SchedulerUser.Name, self.Status.UserInfo.Username)
	groups := append(slices.Clone(shipped.SchedulerUser.Groups), "system:authenticated")
	require.ElementsMatch(t, groups, self.Status.UserInfo.Groups, "system:masters may do everything, whatever the rules are")

	// Somebody in the same groups, whom no rule names.
	somebody := rest.CopyConfig(cp.admin)
	somebody.Impersonate = rest.ImpersonationConfig{UserName: "somebody", Groups: groups}
	everybody := kubernetes.NewForConfigOrDie(somebody)
	var builtIn []string
	for _, name := range []string{"system:basic-user", "system:cluster-trust-bundle-discovery"} {
		var role rbacv1.ClusterRole
		require.NoError(t, cp.client.Get(t.Context(), client.ObjectKey{Name: name}, &role))
		builtIn = append(builtIn, linesOfAll(role.Rules)...)
	}

	for _, namespace := range []string{metav1.NamespaceSystem, metav1.NamespaceDefault} {
		want := shippedRules(t, cp, namespace)
		require.NotEmpty(t, want)
		require.Equal(t, namespace == metav1.NamespaceSystem, slices.Contains(want, "create coordination.k8s.io/leases "))
		theirs, urls := rulesOf(t, everybody, namespace)
		require.Equal(t, sortedSet(builtIn), theirs, "what the API server lets every ServiceAccount do")
		want = sortedSet(append(want, theirs...))
		got, gotURLs := rulesOf(t, scheduler, namespace)
		require.Equal(t, want, got, namespace)
		require.Equal(t, urls, gotURLs, namespace)
	}

	// One permission more would be seen.
	before, _ := rulesOf(t, scheduler, metav1.NamespaceDefault)
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "one-more"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get"}}},
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceSystem, Name: "zonewise-scheduler"}},
	}
	untilRules := func(want []string) {
		t.Helper()
		require.Eventually(t, func() bool {
			got, _ := rulesOf(t, scheduler, metav1.NamespaceDefault)
			return slices.Equal(want, got)
		}, waitTimeout, pollInterval)
	}
	for _, o := range []client.Object{role, binding} {
		require.NoError(t, cp.client.Create(t.Context(), o))
		defer func() { require.NoError(t, client.IgnoreNotFound(cp.client.Delete(t.Context(), o))) }()
	}
	untilRules(sortedSet(append(slices.Clone(before), "get /configmaps ")))
	require.NoError(t, cp.client.Delete(t.Context(), binding))
	require.NoError(t, cp.client.Delete(t.Context(), role))
	untilRules(before)
}

// rulesOf returns what a client may do in a namespace, by the word of the API server: a line each for resources, and the
// other URLs.
func rulesOf(t *testing.T, c kubernetes.Interface, namespace string) (resources, urls []string) {
	t.Helper()
	review, err := c.AuthorizationV1().SelfSubjectRulesReviews().Create(t.Context(), &authorizationv1.SelfSubjectRulesReview{
		Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.False(t, review.Status.Incomplete, review.Status.EvaluationError)
	for _, rule := range review.Status.ResourceRules {
		resources = append(resources, linesOf(rule.Verbs, rule.APIGroups, rule.Resources, rule.ResourceNames)...)
	}
	for _, rule := range review.Status.NonResourceRules {
		urls = append(urls, rule.NonResourceURLs...)
	}
	return sortedSet(resources), sortedSet(urls)
}

// linesOf splits a rule into lines of a verb, a resource and a name, which is empty for all.
func linesOf(verbs, groups, resources, names []string) []string {
	if len(names) == 0 {
		names = []string{""}
	}
	var out []string
	for _, verb := range verbs {
		for _, group := range groups {
			for _, resource := range resources {
				for _, name := range names {
					out = append(out, verb+" "+group+"/"+resource+" "+name)
				}
			}
		}
	}
	return out
}

func linesOfAll(rules []rbacv1.PolicyRule) []string {
	var lines []string
	for _, rule := range rules {
		lines = append(lines, linesOf(rule.Verbs, rule.APIGroups, rule.Resources, rule.ResourceNames)...)
	}
	return lines
}

func sortedSet(lines []string) []string {
	slices.Sort(lines)
	return slices.Compact(lines)
}

// shippedRules returns the rules that the bindings of manifests/rbac give to the scheduler in a namespace. The role that
// they name and do not have is built into the API server.
func shippedRules(t *testing.T, cp *controlPlane, namespace string) []string {
	t.Helper()
	objects, err := shipped.Permissions(shipped.SchedulerRoles)
	require.NoError(t, err)
	roles := map[string][]rbacv1.PolicyRule{}
	var refs []string
	refer := func(ref rbacv1.RoleRef, subjects []rbacv1.Subject) {
		require.Len(t, subjects, 1)
		require.Equal(t, shipped.SchedulerUser.Name, strings.Join([]string{"system:serviceaccount", subjects[0].Namespace, subjects[0].Name}, ":"))
		refs = append(refs, ref.Kind+" "+ref.Name)
	}
	for _, o := range objects {
		switch o := o.(type) {
		case *rbacv1.ClusterRole:
			roles["ClusterRole "+o.Name] = o.Rules
		case *rbacv1.Role:
			roles["Role "+o.Name] = o.Rules
		case *rbacv1.ClusterRoleBinding:
			refer(o.RoleRef, o.Subjects)
		case *rbacv1.RoleBinding:
			if o.Namespace == namespace {
				refer(o.RoleRef, o.Subjects)
			}
		}
	}
	var lines []string
	for _, ref := range refs {
		rules, ok := roles[ref]
		if !ok {
			require.Equal(t, "Role extension-apiserver-authentication-reader", ref)
			var builtIn rbacv1.Role
			require.NoError(t, cp.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "extension-apiserver-authentication-reader"}, &builtIn))
			rules = builtIn.Rules
		}
		lines = append(lines, linesOfAll(rules)...)
	}
	return sortedSet(lines)
}
