package manifests

import (
	"context"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
)

// readCases are what the scheduler reads. Without what kube-scheduler reads itself nothing is scheduled, since a placement that ignores some
// volumes or owners would be wrong. Without what is the plugins' alone, only what they would do with it is not done. They read the rest only
// where there are custom resources.
var readCases = map[string]sets.Set[string]{
	"needed": sets.New(
		"nodes", "pods", "services", "replicationcontrollers", "replicasets.apps", "statefulsets.apps", "namespaces",
		"poddisruptionbudgets.policy", "persistentvolumes", "persistentvolumeclaims",
		"storageclasses.storage.k8s.io", "csinodes.storage.k8s.io", "csidrivers.storage.k8s.io",
		"csistoragecapacities.storage.k8s.io", "volumeattachments.storage.k8s.io",
		"deviceclasses.resource.k8s.io", "resourceslices.resource.k8s.io", "devicetaintrules.resource.k8s.io", "resourceclaims.resource.k8s.io",
	),
	"custom-resources": sets.New("podgroups.scheduling.x-k8s.io", "zonespreadpolicies.zonewise.dev", "zonereservations.zonewise.dev"),
	"plugins": sets.New(
		"deployments.apps", "jobs.batch", "priorityclasses.scheduling.k8s.io",
		"mutatingadmissionpolicies.admissionregistration.k8s.io", "mutatingadmissionpolicybindings.admissionregistration.k8s.io",
		"mutatingwebhookconfigurations.admissionregistration.k8s.io", "validatingadmissionpolicies.admissionregistration.k8s.io",
		"validatingadmissionpolicybindings.admissionregistration.k8s.io", "validatingwebhookconfigurations.admissionregistration.k8s.io",
	),
}

// testReads starts a scheduler for each of these cases, which may read nothing of it. Each is another ServiceAccount with roles of its own, so
// that they run beside each other.
func (r *removal) testReads(t *testing.T) {
	for account, names := range readCases {
		t.Run(account, func(t *testing.T) {
			t.Parallel()
			var gone []permission
			for _, o := range r.roles(t) {
				for p := range granted(o.rules) {
					if names.Has(strings.TrimPrefix(p.String(), "read ")) {
						gone = append(gone, p)
					}
				}
			}
			require.Len(t, gone, len(names))
			restore := r.accountWithout(t, account, gone)
			cmd := r.commandWithout(t, account)
			from := r.auditedSoFar(t)
			log := startAnyhow(t, cmd)
			r.untilRefused(t, "system:serviceaccount:"+metav1.NamespaceSystem+":"+account, from, gone...)
			for _, p := range gone {
				resource := `cannot list resource "` + p.resource + `" in API group "` + p.group + `"`
				until(t, "the log says so: "+resource, func(context.Context) (bool, error) {
					data, err := os.ReadFile(log)
					return strings.Contains(strings.ReplaceAll(string(data), `\`, ""), resource), err // quotes are escaped in it
				})
			}
			ready := func(ctx context.Context) (bool, error) { return cmd.get(ctx, "/readyz", "") == http.StatusOK, nil }
			if account == "needed" {
				now, err := ready(t.Context())
				require.NoError(t, err)
				require.False(t, now, "not ready while it may not read")
				restore(t)
			}
			until(t, "ready as soon as it reads what it needs", ready)
		})
	}
}

// commandWithout returns how to run a scheduler as another ServiceAccount, which may lack a permission. It takes no part
// in the election of a leader.
func (r *removal) commandWithout(t *testing.T, account string) command {
	t.Helper()
	var objects []*unstructured.Unstructured
	for _, u := range r.objects {
		if u.GetKind() == "Deployment" {
			u = u.DeepCopy()
			require.NoError(t, unstructured.SetNestedField(u.Object, account, "spec", "template", "spec", "serviceAccountName"))
		}
		objects = append(objects, u)
	}
	return r.schedulerCommand(t, objects, func(profile string) string {
		require.Contains(t, profile, "leaderElect: true")
		return strings.Replace(profile, "leaderElect: true", "leaderElect: false", 1)
	})
}

// accountWithout makes a ServiceAccount with copies of all roles and bindings of the overlay, which lack permissions until restore is
// called.
func (r *removal) accountWithout(t *testing.T, account string, gone []permission) (restore func(*testing.T)) {
	t.Helper()
	_, err := r.client.CoreV1().ServiceAccounts(metav1.NamespaceSystem).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}, metav1.CreateOptions{})
	require.NoError(t, err)
	var lacking []role
	ours := map[string]bool{}
	for _, o := range r.roles(t) {
		ours[o.namespace+"/"+o.name] = true
	}
	named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name + "-of-" + account} }
	for _, u := range r.objects {
		var err error
		switch u.GetKind() {
		case "ClusterRole":
			var o rbacv1.ClusterRole
			require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &o))
			copied := role{name: named(o.Name).Name, rules: o.Rules}
			if rest := remaining(o.Rules, gone); len(granted(rest)) != len(granted(o.Rules)) {
				lacking = append(lacking, copied)
				o.Rules = rest
			}
			_, err = r.client.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: named(o.Name), Rules: o.Rules}, metav1.CreateOptions{})
		case "ClusterRoleBinding":
			var o rbacv1.ClusterRoleBinding
			require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &o))
			require.True(t, ours["/"+o.RoleRef.Name])
			o.ObjectMeta, o.RoleRef.Name = named(o.Name), named(o.RoleRef.Name).Name
			o.Subjects[0].Name = account
			_, err = r.client.RbacV1().ClusterRoleBindings().Create(t.Context(), &o, metav1.CreateOptions{})
		case "RoleBinding":
			var o rbacv1.RoleBinding
			require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &o))
			namespace := o.Namespace
			o.ObjectMeta = named(o.Name) // of the role itself: nobody takes a lease here
			o.Subjects[0].Name = account
			_, err = r.client.RbacV1().RoleBindings(namespace).Create(t.Context(), &o, metav1.CreateOptions{})
		}
		require.NoError(t, err)
	}
	require.NotEmpty(t, lacking, "no role has %v", gone)
	return func(t *testing.T) {
		for _, o := range lacking {
			r.set(t.Context(), t, o)
		}
	}
}
