package manifests

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// readCases say of each resource that the scheduler reads whether it can go on without: whether it becomes ready.
// Without what kube-scheduler reads itself nothing is scheduled, since a placement that ignores some volumes or owners
// would be wrong; without what is the plugins' alone, only what they would do with it is not done.
var readCases = map[string]struct{ goesOn bool }{
	"nodes": {}, "pods": {}, "services": {}, "replicationcontrollers": {}, "replicasets.apps": {}, "statefulsets.apps": {}, "namespaces": {},
	"poddisruptionbudgets.policy": {}, "persistentvolumes": {}, "persistentvolumeclaims": {},
	"storageclasses.storage.k8s.io": {}, "csinodes.storage.k8s.io": {}, "csidrivers.storage.k8s.io": {},
	"csistoragecapacities.storage.k8s.io": {}, "volumeattachments.storage.k8s.io": {},
	"deviceclasses.resource.k8s.io": {}, "resourceslices.resource.k8s.io": {}, "devicetaintrules.resource.k8s.io": {}, "resourceclaims.resource.k8s.io": {},
	"jobs.batch":                      {goesOn: true},
	"podgroups.scheduling.x-k8s.io":   {goesOn: true},
	"zonespreadpolicies.zonewise.dev": {goesOn: true}, "zonereservations.zonewise.dev": {goesOn: true},
	"priorityclasses.scheduling.k8s.io": {goesOn: true},
}

// testReads takes the reads of one rule after the other, and starts a scheduler. Each is another ServiceAccount with
// roles of its own, so that one is started while another one waits.
func (r *removal) testReads(t *testing.T) {
	number := 0
	for _, o := range r.roles(t) {
		for _, rule := range o.rules {
			var gone []permission
			var names []string
			for p := range granted([]rbacv1.PolicyRule{rule}) {
				if p.verb == "read" && p.resource != "leases" {
					gone = append(gone, p)
				}
			}
			slices.SortFunc(gone, func(a, b permission) int { return strings.Compare(a.String(), b.String()) })
			for _, p := range gone {
				names = append(names, strings.TrimPrefix(p.String(), "read "))
			}
			if len(gone) == 0 {
				continue
			}
			number++
			account := fmt.Sprintf("zonewise-scheduler-%d", number)
			t.Run(strings.Join(names, " "), func(t *testing.T) {
				restore := r.accountWithout(t, account, gone)
				cmd := r.commandWithout(t, account)
				t.Parallel()
				r.testReadsOfRule(t, account, cmd, gone, names, restore)
			})
		}
	}
}

func (r *removal) testReadsOfRule(t *testing.T, account string, cmd command, gone []permission, names []string, restore func(*testing.T)) {
	goesOn := true
	for _, name := range names {
		goesOn = goesOn && readCases[name].goesOn
	}
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
	if goesOn {
		until(t, "ready all the same", ready)
		return
	}
	now, err := ready(t.Context())
	require.NoError(t, err)
	require.False(t, now, "not ready while it may not read")
	restore(t)
	until(t, "ready as soon as it may", ready)
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

// accountWithout makes a ServiceAccount with copies of all roles and bindings of the overlay, of which one role lacks
// permissions until restore is called.
func (r *removal) accountWithout(t *testing.T, account string, gone []permission) (restore func(*testing.T)) {
	t.Helper()
	_, err := r.client.CoreV1().ServiceAccounts(metav1.NamespaceSystem).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}, metav1.CreateOptions{})
	require.NoError(t, err)
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
			if rest := remaining(o.Rules, gone); len(granted(rest)) != len(granted(o.Rules)) {
				require.Nil(t, restore, "one role has them")
				restore = func(t *testing.T) { r.set(t.Context(), t, role{name: named(o.Name).Name, rules: o.Rules}) }
				_, err = r.client.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: named(o.Name), Rules: rest}, metav1.CreateOptions{})
			} else {
				_, err = r.client.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: named(o.Name), Rules: o.Rules}, metav1.CreateOptions{})
			}
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
	require.NotNil(t, restore, "no role has %v", gone)
	return restore
}
