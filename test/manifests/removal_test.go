package manifests

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// overlayOfRemoval is what the rules are taken from, and applied by.
const overlayOfRemoval = "overlays/replace-kube-scheduler"

// TestEveryRuleIsNeeded takes the permissions that the scheduler is shipped with away, one at a time, and requires that
// the scheduler asks for it, is refused, and does not do what it would have done. It is the other half of "least
// privilege", which shows that all of them together suffice.
//
// Every permission of every rule must have its case: those to read in readCases, all others in writeCases and
// leaseCases.
func TestEveryRuleIsNeeded(t *testing.T) {
	t.Parallel()
	r := &removal{cluster: startCluster(t)}
	_, err := r.apply(t, "crds")
	require.NoError(t, err)
	_, err = r.apply(t, overlayOfRemoval)
	require.NoError(t, err)
	r.objects = r.render(t, overlayOfRemoval)
	r.setUp(t)

	cases := slices.Concat(r.writeCases(), r.leaseCases())
	t.Run("every permission has a case", func(t *testing.T) { r.testAllAreCovered(t, cases) })
	// One scheduler serves all cases that need no new start.
	t.Run("writes", func(t *testing.T) {
		r.scheduler = r.startScheduler(t, r.objects)
		for _, tc := range r.writeCases() {
			t.Run(tc.permission.String(), func(t *testing.T) { r.testWithout(t, tc) })
		}
	})
	t.Run("leader election", func(t *testing.T) {
		for _, tc := range r.leaseCases() {
			t.Run(tc.permission.String(), func(t *testing.T) { r.testWithout(t, tc) })
		}
	})
	t.Run("reads", r.testReads)
}

// removal is a cluster of which the scheduler's permissions are changed.
type removal struct {
	*cluster
	objects   []*unstructured.Unstructured // of the overlay
	scheduler *scheduler
}

// role is a Role or a ClusterRole.
type role struct {
	namespace, name string
	rules           []rbacv1.PolicyRule
}

// roles returns the roles of the overlay.
func (r *removal) roles(t *testing.T) []role {
	t.Helper()
	var out []role
	for _, u := range r.objects {
		if u.GetKind() == "ClusterRole" || u.GetKind() == "Role" {
			var o rbacv1.ClusterRole
			require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &o))
			out = append(out, role{o.Namespace, o.Name, o.Rules})
		}
	}
	return out
}

// set gives a role other rules.
func (r *removal) set(ctx context.Context, t *testing.T, o role) {
	t.Helper()
	if o.namespace == "" {
		got, err := r.client.RbacV1().ClusterRoles().Get(ctx, o.name, metav1.GetOptions{})
		require.NoError(t, err)
		got.Rules = o.rules
		_, err = r.client.RbacV1().ClusterRoles().Update(ctx, got, metav1.UpdateOptions{})
		require.NoError(t, err)
		return
	}
	got, err := r.client.RbacV1().Roles(o.namespace).Get(ctx, o.name, metav1.GetOptions{})
	require.NoError(t, err)
	got.Rules = o.rules
	_, err = r.client.RbacV1().Roles(o.namespace).Update(ctx, got, metav1.UpdateOptions{})
	require.NoError(t, err)
}

// without takes permissions away from the role that has them, and gives them back when the function that it returns is
// called, or the test ends. It waits until the API server obeys.
func (r *removal) without(t *testing.T, namespace string, gone ...permission) (restore func()) {
	t.Helper()
	for _, o := range r.roles(t) {
		rest := remaining(o.rules, gone)
		if o.namespace != namespace || len(granted(rest)) == len(granted(o.rules)) {
			continue
		}
		r.set(t.Context(), t, role{o.namespace, o.name, rest})
		restored := false
		restore = func() {
			if !restored {
				restored = true
				r.set(context.WithoutCancel(t.Context()), t, o)
			}
		}
		t.Cleanup(restore)
		for _, p := range gone {
			r.untilAllowed(t, namespace, p, false)
		}
		return restore
	}
	require.Failf(t, "no such permission", "no role in %q has %v", namespace, gone)
	return nil
}

// remaining are the rules less some permissions. A rule is split by group and resource, which changes nothing.
func remaining(rules []rbacv1.PolicyRule, gone []permission) []rbacv1.PolicyRule {
	var out []rbacv1.PolicyRule
	for _, rule := range rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				verbs := slices.DeleteFunc(slices.Clone(rule.Verbs), func(verb string) bool {
					return slices.ContainsFunc(gone, func(p permission) bool {
						return p.group == group && p.resource == resource && (p.verb == verb || p.verb == "read" && slices.Contains(reads, verb))
					})
				})
				if len(verbs) > 0 {
					out = append(out, rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, ResourceNames: rule.ResourceNames, Verbs: verbs})
				}
			}
		}
	}
	return out
}

// untilAllowed waits until the API server allows something to the scheduler, or refuses it.
func (r *removal) untilAllowed(t *testing.T, namespace string, p permission, want bool) {
	t.Helper()
	m := may{verb: p.verb, resource: p.resource, in: namespace}
	if p.verb == "read" {
		m.verb = "list"
	}
	if resource, subresource, ok := strings.Cut(p.resource, "/"); ok {
		m.resource = strings.TrimSuffix(resource+"."+p.group, ".") + "/" + subresource
	} else if p.group != "" {
		m.resource += "." + p.group
	}
	if p.resource == "leases" && p.verb != "create" {
		m.name = "kube-scheduler"
	}
	groups := []string{"system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"}
	until(t, p.String(), func(context.Context) (bool, error) { return r.allowed(t, schedulerAccount, groups, m) == want, nil })
}

// removalCase is a permission, what makes the scheduler want it, and what it then does not do.
type removalCase struct {
	permission permission
	namespace  string // of the Role that has it; empty for a ClusterRole
	// asked is the request that is refused, when it is another one than the permission's.
	asked permission
	// use has the scheduler want it. It returns before anything has come of it.
	use func(t *testing.T)
	// broken requires that what the permission is for was not done.
	broken func(t *testing.T)
	// mended waits until it is done after all, with the permission given back; it may be nil.
	mended func(t *testing.T)
}

// testWithout plays a case.
func (r *removal) testWithout(t *testing.T, tc removalCase) {
	restore := r.without(t, tc.namespace, tc.permission)
	from := r.auditedSoFar(t)
	tc.use(t)
	want := tc.asked
	if want == (permission{}) {
		want = tc.permission
	}
	r.untilRefused(t, schedulerAccount, from, want)
	tc.broken(t)
	restore()
	r.untilAllowed(t, tc.namespace, tc.permission, true)
	if tc.mended != nil {
		tc.mended(t)
	}
}

// untilRefused waits until the API server has refused requests of a user.
func (r *removal) untilRefused(t *testing.T, user string, from int64, wanted ...permission) {
	t.Helper()
	for _, p := range wanted {
		until(t, "refused: "+p.String(), func(context.Context) (found bool, _ error) {
			r.audited(t, user, from, func(asked permission, event *auditv1.Event) {
				// What is asked inside of a request makes that one invalid.
				found = found || asked.kind() == p.kind() && event.ResponseStatus != nil &&
					(event.ResponseStatus.Code == http.StatusForbidden || event.ResponseStatus.Code == http.StatusUnprocessableEntity)
			})
			return found, nil
		})
	}
}

// asked tells whether the scheduler has sent a request, from an offset of the audit log on.
func (r *removal) asked(t *testing.T, from int64, p permission) (found bool) {
	t.Helper()
	r.audited(t, schedulerAccount, from, func(asked permission, _ *auditv1.Event) { found = found || asked == p })
	return found
}

// testAllAreCovered requires that no permission was forgotten.
func (r *removal) testAllAreCovered(t *testing.T, cases []removalCase) {
	want, have := map[string]bool{}, map[string]bool{}
	for _, o := range r.roles(t) {
		for _, rule := range o.rules {
			for p := range granted([]rbacv1.PolicyRule{rule}) {
				if p.verb == "read" && p.resource == "leases" {
					p.verb = "get"
				}
				want[strings.TrimSpace(o.namespace+" "+p.String())] = true
			}
		}
	}
	for _, tc := range cases {
		have[strings.TrimSpace(tc.namespace+" "+tc.permission.String())] = true
	}
	for resource := range readCases {
		have["read "+resource] = true
	}
	require.Equal(t, want, have)
}

// startAnyhow runs a scheduler until the test ends, however it ends then, and returns the path of its log.
func startAnyhow(t *testing.T, cmd command) (log string) {
	t.Helper()
	log = filepath.Join(t.TempDir(), "log")
	file, err := os.Create(log)
	require.NoError(t, err)
	process := exec.Command(cmd.program, cmd.args...)
	process.Stdout, process.Stderr = file, file
	require.NoError(t, process.Start())
	t.Cleanup(func() {
		require.NoError(t, process.Process.Kill())
		_ = process.Wait() // it was killed
		require.NoError(t, file.Close())
		if t.Failed() {
			data, err := os.ReadFile(log)
			require.NoError(t, err)
			t.Log(string(data[max(0, len(data)-5000):]))
		}
	})
	return log
}

// says waits until the scheduler's condition of a pod says that something was forbidden.
func (r *removal) says(t *testing.T, name string) {
	t.Helper()
	until(t, name+" says what was forbidden", func(ctx context.Context) (bool, error) {
		p, err := r.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		require.Empty(t, p.Spec.NodeName)
		return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodScheduled && strings.Contains(strings.ToLower(c.Message), "forbidden")
		}), nil
	})
}
