package manifests

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/component-helpers/auth/rbac/validation"

	"zonewise.dev/manifests/shipped"
)

// schedulerAccount is the name that the API server gives to the ServiceAccount of manifests/rbac.
var schedulerAccount = shipped.SchedulerUser.Name

// may is a question to the API server.
type may struct {
	verb     string
	resource string // with "/subresource" and ".group" as kubectl auth can-i takes them: pods/binding, leases.coordination.k8s.io
	in       string // a namespace; all of them when empty
	name     string // any when empty
}

// attributes splits the resource.
func (m may) attributes() *authorizationv1.ResourceAttributes {
	resource, subresource, _ := strings.Cut(m.resource, "/")
	resource, group, _ := strings.Cut(resource, ".")
	return &authorizationv1.ResourceAttributes{Verb: m.verb, Group: group, Resource: resource, Subresource: subresource, Namespace: m.in, Name: m.name}
}

// allowed asks the API server.
func (c *cluster) allowed(t *testing.T, user string, groups []string, m may) bool {
	t.Helper()
	review := &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{User: user, Groups: groups, ResourceAttributes: m.attributes()},
	}
	c.make(t, review)
	require.Empty(t, review.Status.EvaluationError)
	return review.Status.Allowed
}

// waitAllowed waits until a user may do all of this: the API server's authorizer learns of roles by a watch. What is to
// be denied is asked after that, when it has seen everything.
func (c *cluster) waitAllowed(t *testing.T, user string, groups []string, all ...may) {
	t.Helper()
	for _, m := range all {
		until(t, fmt.Sprintf("%s may %+v", user, m), func(context.Context) (bool, error) { return c.allowed(t, user, groups, m), nil })
	}
}

// testPermissions applies an overlay and asks the API server what the scheduler may do.
func (c *cluster) testPermissions(t *testing.T, overlay string) {
	_, err := c.apply(t, overlay)
	require.NoError(t, err)
	lease, otherLease := "kube-scheduler", "zonewise-scheduler"
	if overlay == "overlays/second-scheduler" {
		lease, otherLease = otherLease, lease
	}

	// What else the roles allow testRules compares with upstream's, and testLeastPrivilege uses. Here the bindings are
	// asked about.
	allowed := []may{
		{verb: "create", resource: "pods/binding", in: "shop"},
		{verb: "watch", resource: "podgroups.scheduling.x-k8s.io"},
		{verb: "patch", resource: "zonereservations.zonewise.dev/status"},
		{verb: "update", resource: "leases.coordination.k8s.io", in: "kube-system", name: lease},
		{verb: "get", resource: "leases.coordination.k8s.io", in: "kube-system", name: otherLease},
		{verb: "get", resource: "configmaps", in: "kube-system", name: "extension-apiserver-authentication"},
	}
	denied := []may{
		{verb: "*", resource: "*.*"},
		{verb: "get", resource: "secrets", in: "kube-system"},
		{verb: "create", resource: "pods", in: "shop"},
		{verb: "patch", resource: "zonespreadpolicies.zonewise.dev", in: "shop"},
		{verb: "create", resource: "leases.coordination.k8s.io", in: "kube-node-lease"},
		{verb: "update", resource: "leases.coordination.k8s.io", in: "kube-system", name: otherLease},
		{verb: "get", resource: "configmaps", in: "kube-system", name: "kubeadm-config"},
		{verb: "escalate", resource: "clusterroles.rbac.authorization.k8s.io", name: "zonewise-scheduler"},
	}
	groups := []string{"system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"}
	c.waitAllowed(t, schedulerAccount, groups, allowed...)
	for _, m := range allowed {
		require.False(t, c.allowed(t, "nobody", []string{"system:authenticated"}, m), "every user may %+v, which proves nothing", m)
	}
	for _, m := range denied {
		require.False(t, c.allowed(t, schedulerAccount, groups, m), "%+v must be denied", m)
	}

	c.testRules(t, overlay)
}

// testRules requires that no rule has a wildcard, and that none allows more than upstream's own roles for
// kube-scheduler do, but for what the plugins need.
func (c *cluster) testRules(t *testing.T, overlay string) {
	var upstream, ours, all []rbacv1.PolicyRule
	for _, name := range []string{"system:kube-scheduler", "system:volume-scheduler"} {
		role, err := c.client.RbacV1().ClusterRoles().Get(t.Context(), name, metav1.GetOptions{})
		require.NoError(t, err)
		upstream = append(upstream, role.Rules...)
	}
	leader, err := c.client.RbacV1().Roles(metav1.NamespaceSystem).Get(t.Context(), "system::leader-locking-kube-scheduler", metav1.GetOptions{})
	require.NoError(t, err)
	upstream = append(upstream, leader.Rules...)

	plugins := []string{
		"patch podgroups.scheduling.x-k8s.io/status",
		"patch zonereservations.zonewise.dev/status",
		"patch zonespreadpolicies.zonewise.dev/status",
		"read jobs.batch",
		"read podgroups.scheduling.x-k8s.io",
		"read priorityclasses.scheduling.k8s.io",
		"read zonereservations.zonewise.dev",
		"read zonespreadpolicies.zonewise.dev",
	}
	for _, u := range c.render(t, overlay) {
		if u.GetKind() != "ClusterRole" && u.GetKind() != "Role" {
			continue
		}
		var role rbacv1.ClusterRole
		require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &role))
		if role.Name == "zonewise-plugins" {
			require.Equal(t, plugins, list(granted(role.Rules)))
		} else {
			ours = append(ours, role.Rules...)
		}
		all = append(all, role.Rules...)
	}
	require.NotEmpty(t, ours)
	for _, rule := range all {
		require.NotContains(t, slices.Concat(rule.Verbs, rule.Resources, rule.APIGroups, rule.ResourceNames), "*")
		require.Empty(t, rule.NonResourceURLs)
	}
	ok, more := validation.Covers(upstream, ours)
	require.True(t, ok, "more than upstream's roles allow: %v", more)
	ok, _ = validation.Covers(ours, upstream)
	require.False(t, ok, "no less than upstream's roles allow")
}

// testPermissionsOfKubeadmsUser: the static pod of kubeadm is the user system:kube-scheduler, and lacks
// what the plugins need until manifests/kubeadm is applied.
func (c *cluster) testPermissionsOfKubeadmsUser(t *testing.T) {
	read := may{verb: "list", resource: "podgroups.scheduling.x-k8s.io"}
	user, groups := "system:kube-scheduler", []string{"system:authenticated"}
	require.False(t, c.allowed(t, user, groups, read))
	_, err := c.apply(t, "kubeadm")
	require.NoError(t, err)
	c.waitAllowed(t, user, groups, read)
	require.False(t, c.allowed(t, user, groups, may{verb: "update", resource: "podgroups.scheduling.x-k8s.io"}))
}
