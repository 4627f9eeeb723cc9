package cli

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"zonewise.dev/test/internal/apiserver"
)

// viewerCase is a resource that manifests/rbac/viewer grants, a command that looks at it, and what that shows because
// of it alone.
type viewerCase struct {
	resource string
	command  string
	shows    string
	// says is what the command says without the permission; by default that the resource is left out.
	says string
	// fails is the exit code that it then has.
	fails int
}

// testAViewerWithLess takes permissions of manifests/rbac/viewer away, one resource after the other, and requires that
// a command lacks what it shows with all of them; then, for the board, a watch. testPermissions shows that each kind is
// read.
func (c *cluster) testAViewerWithLess(t *testing.T, viewer string) {
	urgent := c.Write(t, "urgent.yaml", []byte("apiVersion: v1\nkind: Pod\nmetadata:\n  name: urgent\nspec:\n  priorityClassName: system-cluster-critical\n  containers: []\n"))
	for _, tc := range []viewerCase{
		{resource: "nodes", command: "status", shows: `"nodes": 1`, says: "nodes is forbidden", fails: 1},
		{resource: "pods", command: "status", shows: `"waitingPods"`, says: "pods is forbidden", fails: 1},
		{resource: "events.events.k8s.io", command: "explain web-3", shows: `"FailedScheduling"`, says: "you may not list events: what the scheduler said is left out"},
		{resource: "replicasets.apps", command: "explain web-0", shows: `"Deployment shop/web"`},
		{resource: "priorityclasses.scheduling.k8s.io", command: "simulate --fail-on none -f " + urgent, shows: `"added": 1`, says: `PriorityClasses could not be read`, fails: 2},
		{resource: "zonespreadpolicies.zonewise.dev", command: "status", shows: `"Infeasible"`},
		{resource: "zonereservations.zonewise.dev", command: "status", shows: `"failover"`},
		{resource: "zonesurvivals.zonewise.dev", command: "status", shows: `"services"`},
		{resource: "zonerebalances.zonewise.dev", command: "status", shows: `"spread"`},
		{resource: "podgroups.scheduling.x-k8s.io", command: "status", shows: `"minMember": 2`},
	} {
		t.Run("without "+tc.resource, func(t *testing.T) {
			args := append(strings.Fields(tc.command), "-n", namespace, "-o", "json")
			code, stdout, stderr := c.run(t, viewer, args...)
			require.Zero(t, code, stderr)
			require.Contains(t, stdout, tc.shows)
			require.NotContains(t, stdout+stderr, "you may not")

			fewer := c.userWithout(t, "no-"+strings.ToLower(tc.resource), tc.resource, "list", "watch")
			code, stdout, stderr = c.run(t, fewer, args...)
			require.Equal(t, tc.fails, code, stderr)
			require.NotContains(t, stdout, tc.shows)
			says := tc.says
			if says == "" {
				says = "you may not list " + tc.resource + ", they are left out"
			}
			require.Contains(t, stdout+stderr, says)
		})
	}
	t.Run("without a watch", func(t *testing.T) {
		page := filepath.Join(c.Dir, "board.html")
		require.Contains(t, c.ok(t, viewer, "board", "--output", page), page)
		require.NotContains(t, c.untilBoard(t, viewer, "node-a"), "you may")
		fewer := c.userWithout(t, "unwatched", "persistentvolumes", "watch")
		c.untilBoard(t, fewer, "you may list but not watch persistentvolumes: changes show half a minute late")
	})
}

// perResource splits rules so that each is about one resource.
func perResource(rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	var out []rbacv1.PolicyRule
	for _, rule := range rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				out = append(out, rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: rule.Verbs})
			}
		}
	}
	return out
}

// keyOf names the one resource of a rule, as in deployments.apps.
func keyOf(rule rbacv1.PolicyRule) string {
	return schema.GroupResource{Group: rule.APIGroups[0], Resource: rule.Resources[0]}.String()
}

// userWithout makes a user who may do all that a viewer may, but for some verbs on a resource, and returns a kubeconfig
// once the API server obeys.
func (c *cluster) userWithout(t *testing.T, name, resource string, verbs ...string) string {
	t.Helper()
	var rules []rbacv1.PolicyRule
	asked := map[authorizationv1.ResourceAttributes]bool{}
	for _, rule := range perResource(apiserver.ViewerRules(t)) {
		var left []string
		for _, verb := range rule.Verbs {
			may := keyOf(rule) != resource || !slices.Contains(verbs, verb)
			if may {
				left = append(left, verb)
			}
			asked[authorizationv1.ResourceAttributes{Group: rule.APIGroups[0], Resource: rule.Resources[0], Verb: verb}] = may
		}
		if rule.Verbs = left; len(left) > 0 {
			rules = append(rules, rule)
		}
	}
	kubeconfig := c.User(t, name, rules)
	until(t, "the API server knows what "+name+" may", func(ctx context.Context) (bool, error) {
		for attributes, may := range asked {
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: name, ResourceAttributes: &attributes}}
			if err := c.Create(ctx, review); err != nil || review.Status.Allowed != may {
				return false, err
			}
		}
		return true, nil
	})
	return kubeconfig
}

// untilBoard serves the board until its page has some words in it, and returns that page.
func (c *cluster) untilBoard(t *testing.T, kubeconfig, words string) (page string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), c.zonewise, "board", "--kubeconfig", kubeconfig)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	require.NoError(t, cmd.Start())
	url, address := "", regexp.MustCompile(`http://\S+/`)
	for lines := bufio.NewScanner(stdout); url == "" && lines.Scan(); {
		url = address.FindString(lines.Text())
	}
	if url == "" {
		require.FailNow(t, "the board has not started", "%v %s", cmd.Wait(), stderr.String())
	}
	until(t, words, func(ctx context.Context) (bool, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return false, err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return false, err
		}
		defer response.Body.Close()
		content, err := io.ReadAll(response.Body)
		page = string(content)
		return strings.Contains(page, words), err
	})
	require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	_, err = io.Copy(io.Discard, stdout)
	require.NoError(t, err)
	require.NoError(t, cmd.Wait(), stderr.String())
	return page
}
