package cli

import (
	"bufio"
	"context"
	"fmt"
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
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/test/internal/apiserver"
)

// viewerCase is a resource that manifests/rbac/viewer grants, a command that looks at it, and what that shows because of
// it alone.
type viewerCase struct {
	resource string
	command  string
	shows    string
	// says is what the command says without the permission; by default that the resource is left out.
	says string
	// fails is the exit code that it then has.
	fails int
}

// viewerCases has a case for every resource of the role.
func (c *cluster) viewerCases(t *testing.T) []viewerCase {
	urgent := c.Write(t, "urgent.yaml", []byte("apiVersion: v1\nkind: Pod\nmetadata:\n  name: urgent\nspec:\n  priorityClassName: system-cluster-critical\n  containers: []\n"))
	return []viewerCase{
		{resource: "nodes", command: "status", shows: `"nodes": 1`, says: "nodes is forbidden", fails: 1},
		{resource: "pods", command: "status", shows: `"waitingPods"`, says: "pods is forbidden", fails: 1},
		{resource: "events.events.k8s.io", command: "explain web-3", shows: `"FailedScheduling"`, says: "you may not list events: the scheduler's own words are left out"},
		{resource: "namespaces", command: "explain lonely", shows: "with a pod that the pod's anti-affinity avoids"},
		{resource: "persistentvolumes", command: "explain stored", shows: "away from the pod's volume"},
		{resource: "persistentvolumeclaims", command: "explain stored", shows: "away from the pod's volume"},
		{resource: "deployments.apps", command: "explain web-0", shows: `"Deployment shop/web"`},
		{resource: "replicasets.apps", command: "explain web-0", shows: `"Deployment shop/web"`},
		{resource: "statefulsets.apps", command: "explain db-1", shows: `"desired": 2`},
		{resource: "jobs.batch", command: "explain batch-1", shows: `"desired": 2`},
		{resource: "replicationcontrollers", command: "explain legacy-1", shows: `"desired": 2`},
		{resource: "poddisruptionbudgets.policy", command: "simulate --fail-on none --lose-zone a", shows: `"shop/db-budget"`},
		{resource: "priorityclasses.scheduling.k8s.io", command: "simulate --fail-on none -f " + urgent, shows: `"added": 1`, says: `PriorityClasses could not be read`, fails: 2},
		{resource: "zonespreadpolicies.zonewise.dev", command: "status", shows: `"Infeasible"`},
		{resource: "zonereservations.zonewise.dev", command: "status", shows: `"failover"`},
		{resource: "podgroups.scheduling.x-k8s.io", command: "status", shows: `"minMember": 2`},
	}
}

// testEveryViewerRuleIsNeeded takes the permissions of manifests/rbac/viewer away, one resource after the other, and
// requires that a command lacks what it shows with all of them; then, for the board, the watches.
func (c *cluster) testEveryViewerRuleIsNeeded(t *testing.T, viewer string) {
	c.viewerWorkload(t)
	cases := c.viewerCases(t)
	var have, granted, watched []string
	for _, tc := range cases {
		have = append(have, tc.resource)
	}
	for _, rule := range perResource(apiserver.ViewerRules(t)) {
		granted = append(granted, keyOf(rule))
		if slices.Contains(rule.Verbs, "watch") {
			watched = append(watched, keyOf(rule))
		}
	}
	require.ElementsMatch(t, granted, have, "every resource of the role has a case")

	for _, tc := range cases {
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

	page := filepath.Join(c.Dir, "board.html")
	require.Contains(t, c.ok(t, viewer, "board", "--output", page), page)
	require.NotContains(t, c.untilBoard(t, viewer, "node-a"), "you may")
	for _, resource := range watched {
		t.Run("without watching "+resource, func(t *testing.T) {
			fewer := c.userWithout(t, "unwatched-"+resource, resource, "watch")
			c.untilBoard(t, fewer, "you may list but not watch "+resource+": changes show half a minute late")
		})
	}
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

// viewerWorkload makes objects of the kinds that the other tests do without. No scheduler looks at their pods.
func (c *cluster) viewerWorkload(t *testing.T) {
	t.Helper()
	waiting := func(p *corev1.Pod) *corev1.Pod {
		p.Spec.SchedulerName = "nobody"
		return p
	}
	// Three workloads that want 6 pods and have one in zone a: 2 are due in each zone.
	of := func(app string) map[string]string { return map[string]string{"app": app} }
	template := func(app string, restart corev1.RestartPolicy) corev1.PodTemplateSpec {
		spec := pod("", "100m", nil).Spec
		spec.TerminationGracePeriodSeconds, spec.RestartPolicy = nil, restart
		return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: of(app)}, Spec: spec}
	}
	object := func(app string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: namespace, Name: app} }
	legacy := template("legacy", corev1.RestartPolicyAlways)
	db := &appsv1.StatefulSet{ObjectMeta: object("db"), Spec: appsv1.StatefulSetSpec{
		Replicas: ptr.To[int32](6), Selector: &metav1.LabelSelector{MatchLabels: of("db")}, Template: template("db", corev1.RestartPolicyAlways),
	}}
	batch := &batchv1.Job{ObjectMeta: object("batch"), Spec: batchv1.JobSpec{Parallelism: ptr.To[int32](6), Template: template("batch", corev1.RestartPolicyNever)}}
	controller := &corev1.ReplicationController{ObjectMeta: object("legacy"), Spec: corev1.ReplicationControllerSpec{Replicas: ptr.To[int32](6), Selector: of("legacy"), Template: &legacy}}
	for app, owner := range map[string]client.Object{"db": db, "batch": batch, "legacy": controller} {
		c.Make(t, owner, &v1alpha1.ZoneSpreadPolicy{ObjectMeta: object(app), Spec: v1alpha1.ZoneSpreadPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: of(app)}, Zones: []v1alpha1.ZoneSpreadZone{{Name: "a"}, {Name: "b"}, {Name: "c"}},
		}})
		kind, err := c.GroupVersionKindFor(owner)
		require.NoError(t, err)
		for i := range 2 {
			p := waiting(pod(fmt.Sprintf("%s-%d", app, i), "100m", of(app), *metav1.NewControllerRef(owner, kind)))
			if i == 0 {
				p.Spec.NodeName = "node-a"
			}
			c.Make(t, p)
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
			if i == 0 {
				require.NoError(t, c.Status().Update(t.Context(), p))
			}
		}
	}
	c.Make(t, &policyv1.PodDisruptionBudget{ObjectMeta: object("db-budget"), Spec: policyv1.PodDisruptionBudgetSpec{
		MinAvailable: ptr.To(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: of("db")},
	}})

	// One that avoids the pods of a namespace, which it names by a label.
	lonely := waiting(pod("lonely", "100m", of("lonely")))
	lonely.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
		TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: of("web")},
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
	}}}}

	// And one whose volume is in zone a.
	storage := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	stored := waiting(pod("stored", "100m", of("stored")))
	stored.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
	c.Make(t, lonely, stored, &corev1.PersistentVolumeClaim{ObjectMeta: object("data"), Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: modes, VolumeName: "data", StorageClassName: ptr.To(""), Resources: corev1.VolumeResourceRequirements{Requests: storage},
	}}, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "data"}, Spec: corev1.PersistentVolumeSpec{
		AccessModes: modes, Capacity: storage, ClaimRef: &corev1.ObjectReference{Namespace: namespace, Name: "data"},
		PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/data"}},
		NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{"a"}}},
		}}}},
	}})
}
