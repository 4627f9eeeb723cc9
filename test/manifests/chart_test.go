package manifests

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	schedv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
	"sigs.k8s.io/yaml"

	"zonewise.dev/config"
	"zonewise.dev/manifests/monitoring"
	"zonewise.dev/test/internal/program"
)

// TestChart renders the chart with the helm that hack/tools pins, and installs it.
func TestChart(t *testing.T) {
	t.Parallel()
	c := startChart(t)
	t.Run("lint", c.testLint)
	t.Run("bad values", c.testBadValues)
	t.Run("profiles", c.testChartProfiles)
	for mode, overlay := range map[string]string{"second": "overlays/second-scheduler", "replace": "overlays/replace-kube-scheduler"} {
		t.Run(mode+" is the overlay", func(t *testing.T) { c.testChartIsOverlay(t, overlay, 11, "mode="+mode) })
		t.Run(mode+" is the overlay with its component", func(t *testing.T) {
			c.testChartIsOverlay(t, c.withController(t, overlay), 21, "mode="+mode, "controller.survival.enabled=true")
			c.testChartIsOverlay(t, c.withController(t, overlay, "buy"), 23, "mode="+mode, "controller.survival.enabled=true", "controller.buy.enabled=true")
			c.testChartIsOverlay(t, c.withController(t, overlay, "gang-budgets"), 23, "mode="+mode, "controller.survival.enabled=true", "controller.gangBudgets.enabled=true")
			c.testChartIsOverlay(t, c.withController(t, overlay, "deletion-costs"), 25, "mode="+mode, "controller.survival.enabled=true", "controller.deletionCosts.enabled=true")
			c.testChartIsOverlay(t, c.withController(t, overlay, "autoscaler-constraints"), 27, "mode="+mode, "controller.survival.enabled=true", "autoscalerConstraints.enabled=true")
			c.testChartIsOverlay(t, c.withController(t, overlay, "rebalance"), 23, "mode="+mode, "controller.survival.enabled=true", "controller.rebalance.enabled=true")
			c.testChartIsOverlay(t, c.withController(t, overlay, "rebalance", "rebalance-evict"), 25, "mode="+mode, "controller.survival.enabled=true",
				"controller.rebalance.enabled=true", "controller.rebalance.evict=true")
			c.testChartIsOverlay(t, c.withController(t, overlay, "native-gangs"), 23, "mode="+mode, "controller.survival.enabled=true", "nativeGangs.enabled=true")
		})
	}
	t.Run("the server accepts all", c.testServerAcceptsChart)
	t.Run("network policies", c.testNetworkPolicies)
	t.Run("flags of the controller", c.testControllerFlags)
	t.Run("alerts", c.testAlerts)

	// From here on the chart is installed for real.
	c.make(t, &corev1.Namespace{ObjectMeta: named(namespace)})
	t.Run("install, upgrade, roll back, uninstall", c.testRelease)
	t.Run("the way back to stock kube-scheduler", c.testChartWayBack)
}

// chart is a cluster, and the chart of its files.
type chart struct {
	*cluster
	helm string
}

func startChart(t *testing.T) *chart {
	t.Helper()
	helm, err := program.Helm(repository(t))
	require.NoError(t, err)
	return &chart{cluster: startCluster(t), helm: helm}
}

// do runs helm as the administrator.
func (c *chart) do(t *testing.T, args ...string) (string, error) {
	t.Helper()
	return c.exec(t, nil, c.helm, append(args, "--kubeconfig", c.kubeconfig)...)
}

// template renders the chart as a release called zonewise in kube-system.
func (c *chart) template(t *testing.T, values ...string) (string, error) {
	t.Helper()
	args := []string{"template", "zonewise", "charts/zonewise", "--namespace", metav1.NamespaceSystem, "--kube-version", "1.37.2"}
	for _, v := range values {
		args = append(args, "--set", v)
	}
	return c.exec(t, nil, c.helm, args...)
}

func (c *chart) objects(t *testing.T, values ...string) []*unstructured.Unstructured {
	t.Helper()
	out, err := c.template(t, values...)
	require.NoError(t, err)
	return parse(t, out)
}

// variants are values that reach every branch of the templates.
var variants = map[string][]string{
	"defaults": nil,
	"replace":  {"mode=replace"},
	"everything": {
		"image.digest=sha256:" + strings.Repeat("0", 64), "imagePullSecrets[0].name=pull", "replicas=3", "schedulerName=zones",
		"plugins.zoneSpread.weight=5", "plugins.reserveCache.args.handlerSyncTimeout=10s", "extraProfiles[0].schedulerName=plain",
		"leaderElection.leaseDuration=30s", "logLevel=4", "extraArgs[0]=--kube-api-qps=100", "resources.limits.memory=8Gi",
		"podDisruptionBudget.maxUnavailable=50%", "nodeSelector.pool=system", "tolerations[0].key=system", "tolerations[0].operator=Exists",
		"affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].key=gpu",
		"affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].operator=DoesNotExist",
		"podAnnotations.team=platform", "podLabels.team=platform", "serviceAccount.annotations.team=platform", "rbac.viewer=true", "fullnameOverride=zones",
	},
	"nothing optional": {
		"replicas=1", "podDisruptionBudget.enabled=false", "serviceAccount.create=false", "serviceAccount.name=mine", "rbac.create=false", "resources=null",
	},
	"native gangs": {"nativeGangs.enabled=true"},
	"controller": {
		"controller.survival.enabled=true", "controller.cpuFraction=0.5", "controller.extraArgs[0]=--address=:9090", "tolerations[0].operator=Exists",
		"controller.survival.replays=5", "controller.survival.refreshInterval=20m", "controller.rebalance.enabled=true", "controller.rebalance.seeds=2",
		"controller.controllers[0]=RayCluster.ray.io", "controller.controllers[1]=Other.example.com",
		"controller.settleTime=10s", "controller.callExtenders=true", "controller.deletionCosts.enabled=true",
		"nativeGangs.enabled=true",
	},
	"walled": {
		"controller.survival.enabled=true", "networkPolicy.enabled=true",
		`networkPolicy.from[0].namespaceSelector.matchLabels.kubernetes\.io/metadata\.name=monitoring`,
	},
	"walled up":    {"networkPolicy.enabled=true"},
	"spread only":  {"mode=replace", "plugins.reserveCache.enabled=false", "plugins.permitGate.enabled=false"},
	"reserve only": {"mode=replace", "plugins.zoneSpread.enabled=false", "plugins.permitGate.enabled=false"},
	"gate only":    {"mode=replace", "plugins.zoneSpread.enabled=false", "plugins.reserveCache.enabled=false"},
}

func (c *chart) testLint(t *testing.T) {
	for name, values := range variants {
		t.Run(name, func(t *testing.T) {
			args := []string{"lint", "--strict", "--kube-version", "1.37.2", "--namespace", metav1.NamespaceSystem, "charts/zonewise"}
			for _, v := range values {
				args = append(args, "--set", v)
			}
			out, err := c.exec(t, nil, c.helm, args...)
			require.NoError(t, err, out)
			require.Contains(t, out, "0 chart(s) failed")
		})
	}
	file := filepath.Join(c.dir, "charts", "zonewise", "templates", "wrong.yaml")
	require.NoError(t, os.WriteFile(file, []byte("kind: {{ .Values.mode.kind.name }}\n"), 0o600))
	_, err := c.exec(t, nil, c.helm, "lint", "--strict", "charts/zonewise")
	require.Error(t, err, "the linter finds what is wrong")
	require.NoError(t, os.Remove(file))
}

func (c *chart) testBadValues(t *testing.T) {
	for values, want := range map[string]string{
		"mode=third":                      "at '/mode': value must be one of 'second', 'replace'",
		"replica=3":                       "additional properties 'replica' not allowed",
		"replicas=-1":                     "at '/replicas'",
		"plugins.zoneSpread.enable=true":  "at '/plugins/zoneSpread': additional properties 'enable' not allowed",
		"plugins.zoneSpread.weight=0":     "at '/plugins/zoneSpread/weight'",
		"controller.cpuFraction=0":        "at '/controller/cpuFraction'",
		"controller.rebalance.seeds=21":   "at '/controller/rebalance/seeds'",
		"controller.rebalance.evict=true": "at '/controller/rebalance/enabled': value must be true",
		"controller.settleTime=10":        "at '/controller/settleTime'",
		"controller.survival.enable=true": "at '/controller/survival': additional properties 'enable' not allowed",
		"image.repository=a:b":            "at '/image/repository'",
		"image.digest=latest":             "at '/image/digest'",
		"leaderElection.retryPeriod=2":    "at '/leaderElection/retryPeriod'",
		"serviceAccount.create=false":     "at '/serviceAccount/name'",
		"extraArgs[0]=v":                  "at '/extraArgs/0'",
		"monitoring.runbooks=docs/a.md":   "at '/monitoring/runbooks'",
		"schedulerName=default-scheduler": "two would place the same pods; set mode to replace",
		"mode=replace,schedulerName=mine": "in mode replace it is default-scheduler and cannot be set",
		"plugins.zoneSpread.enabled=false,plugins.reserveCache.enabled=false,plugins.permitGate.enabled=false": "plugins: none is enabled",
	} {
		t.Run(values, func(t *testing.T) {
			_, err := c.template(t, values)
			require.ErrorContains(t, err, want)
		})
	}
	_, err := c.exec(t, nil, c.helm, "template", "zonewise", "charts/zonewise", "--kube-version", "1.36.4")
	require.ErrorContains(t, err, "incompatible with Kubernetes v1.36.4")
}

// testChartProfiles requires that the scheduler takes every profile, and that with one plugin the profile
// is the one that config has for it.
func (c *chart) testChartProfiles(t *testing.T) {
	profile := func(t *testing.T, values []string) string {
		t.Helper()
		return only[corev1.ConfigMap](t, c.objects(t, values...), "ConfigMap").Data["config.yaml"]
	}
	for name, values := range variants {
		t.Run(name, func(t *testing.T) { loadProfile(t, profile(t, values)) })
	}
	for name, file := range map[string]string{
		"defaults": "second-scheduler.yaml", "replace": "zonewise.yaml",
		"spread only": "zonespread.yaml", "reserve only": "reservecache.yaml", "gate only": "permitgate.yaml",
	} {
		t.Run(file, func(t *testing.T) {
			data, err := config.FS.ReadFile(file)
			require.NoError(t, err)
			want := loadProfile(t, string(data))
			values := variants[name]
			for key, plugin := range map[string]string{"zoneSpread": "ZoneSpread", "reserveCache": "ReserveCache", "permitGate": "PermitGate"} {
				values = append(values, argsOf(t, data, plugin, "plugins."+key+".args.")...)
			}
			require.Empty(t, cmp.Diff(want, loadProfile(t, profile(t, values))))
		})
	}
	everything := loadProfile(t, profile(t, variants["everything"]))
	require.Len(t, everything.Profiles, 2)
	require.Equal(t, "zones", everything.Profiles[0].SchedulerName)
	require.Equal(t, "zones", everything.LeaderElection.ResourceName)
	require.Equal(t, "30s", everything.LeaderElection.LeaseDuration.Duration.String())
}

// argsOf returns what a profile gives to a plugin as values of the chart.
func argsOf(t *testing.T, profile []byte, plugin, prefix string) []string {
	t.Helper()
	var cfg struct {
		Profiles []struct {
			PluginConfig []struct {
				Name string
				Args map[string]string
			}
		}
	}
	require.NoError(t, yaml.Unmarshal(profile, &cfg))
	var out []string
	for _, p := range cfg.Profiles[0].PluginConfig {
		for name, value := range p.Args {
			if p.Name == plugin {
				out = append(out, prefix+name+"="+value)
			}
		}
	}
	return out
}

// testChartIsOverlay requires that the chart with its defaults gives the objects of the overlay: the
// permissions above all.
func (c *chart) testChartIsOverlay(t *testing.T, overlay string, objects int, values ...string) {
	want, got := normalized(t, c.render(t, overlay)), normalized(t, c.objects(t, values...))
	require.Len(t, want, objects)
	require.Empty(t, cmp.Diff(want, got))
}

// normalized returns objects by kind and name without what is each tool's own: their labels, the hash of
// the profile, and the text of the profile, which testChartProfiles compares.
func normalized(t *testing.T, objects []*unstructured.Unstructured) map[string]any {
	t.Helper()
	out := map[string]any{}
	for _, u := range objects {
		u = u.DeepCopy()
		u.SetLabels(nil)
		delete(u.Object, "data")
		switch u.GetKind() {
		case "Deployment":
			unstructured.RemoveNestedField(u.Object, "spec", "template", "metadata", "annotations")
		case "ConfigMap":
			u.SetName(regexp.MustCompile(`-config-[a-z0-9]{10}$`).ReplaceAllString(u.GetName(), "-config"))
		}
		data, err := json.Marshal(without(u.Object, "app.kubernetes.io/instance"))
		require.NoError(t, err)
		data = regexp.MustCompile(`-config-[a-z0-9]{10}"`).ReplaceAll(data, []byte(`-config"`))
		// kubeadm's user is bound to this role too, so that the kustomization names it for itself.
		data = regexp.MustCompile(`"zonewise-plugins"`).ReplaceAll(data, []byte(`"zonewise-scheduler-plugins"`))
		var object map[string]any
		require.NoError(t, json.Unmarshal(data, &object))
		name, _, err := unstructured.NestedString(object, "metadata", "name")
		require.NoError(t, err)
		key := u.GetKind() + "/" + name
		require.NotContains(t, out, key)
		out[key] = object
	}
	return out
}

// without removes a key from all maps of a value.
func without(value any, key string) any {
	switch value := value.(type) {
	case map[string]any:
		delete(value, key)
		for k := range value {
			value[k] = without(value[k], key)
		}
	case []any:
		for i := range value {
			value[i] = without(value[i], key)
		}
	}
	return value
}

func (c *chart) testServerAcceptsChart(t *testing.T) {
	namespace := c.restricted(t)
	for name, values := range variants {
		t.Run(name, func(t *testing.T) {
			rendered, err := c.template(t, values...)
			require.NoError(t, err)
			objects := parse(t, rendered)
			out, err := c.exec(t, strings.NewReader(rendered), c.kubectl, "--kubeconfig", c.kubeconfig,
				"apply", "--server-side", "--validate=strict", "--dry-run=server", "-f", "-")
			require.NoError(t, err)
			require.Equal(t, len(objects), strings.Count(out, "(server dry run)"), out)

			for _, u := range objects {
				require.Equal(t, "Helm", u.GetLabels()["app.kubernetes.io/managed-by"], u.GetName())
				if u.GetKind() != "Deployment" {
					continue
				}
				template := only[appsv1.Deployment](t, []*unstructured.Unstructured{u}, "Deployment").Spec.Template
				require.True(t, *template.Spec.Containers[0].SecurityContext.ReadOnlyRootFilesystem)
				if !template.Spec.HostNetwork {
					require.NoError(t, c.wouldCreate(t, namespace, &template), "the strictest Pod Security Standard")
				}
				flags(t, template.Spec.Containers[0].Args)
			}
		})
	}
}

// testControllerFlags requires that each value of the controller becomes its flag, and that the program knows the flag.
func (c *chart) testControllerFlags(t *testing.T) {
	var args []string
	for _, deployment := range all[appsv1.Deployment](t, c.objects(t, variants["controller"]...), "Deployment") {
		if args = deployment.Spec.Template.Spec.Containers[0].Args; args[0] == "controller" {
			break
		}
	}
	require.Equal(t, []string{
		"controller", "--survival", "--rebalance", "--deletion-costs", "--config=/etc/zonewise/config.yaml", "--v=2", "--cpu-fraction=0.5", "--feature-gates=GenericWorkload=true",
		"--call-extenders=true", "--controllers=RayCluster.ray.io,Other.example.com",
		"--rebalance-seeds=2", "--refresh-interval=20m", "--replays=5", "--settle-time=10s", "--address=:9090",
	}, args)
	binary, err := program.Scheduler(repository(t))
	require.NoError(t, err)
	help, err := c.exec(t, nil, binary, "controller", "--help")
	require.NoError(t, err, help)
	for _, arg := range args[1:] {
		name, _, _ := strings.Cut(arg, "=")
		require.Contains(t, help, name+" ", arg)
	}
}

// testNetworkPolicies requires that each pod which a policy can reach has one, that it matches the pod, and lets in
// what the values name, to the pod's own port.
func (c *chart) testNetworkPolicies(t *testing.T) {
	for name, want := range map[string]int{"walled": 2, "walled up": 1, "controller": 0} {
		objects := c.objects(t, variants[name]...)
		policies := all[networkingv1.NetworkPolicy](t, objects, "NetworkPolicy")
		require.Len(t, policies, want, name)
		for _, policy := range policies {
			require.Equal(t, []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}, policy.Spec.PolicyTypes)
			selector, err := metav1.LabelSelectorAsSelector(&policy.Spec.PodSelector)
			require.NoError(t, err)
			matched := 0
			for _, deployment := range all[appsv1.Deployment](t, objects, "Deployment") {
				if !selector.Matches(labels.Set(deployment.Spec.Template.Labels)) {
					continue
				}
				matched++
				require.Equal(t, policy.Name, deployment.Name)
				if name == "walled up" {
					require.Empty(t, policy.Spec.Ingress, "nobody is named")
					continue
				}
				require.Len(t, policy.Spec.Ingress, 1)
				require.Equal(t, map[string]string{"kubernetes.io/metadata.name": "monitoring"}, policy.Spec.Ingress[0].From[0].NamespaceSelector.MatchLabels)
				require.Len(t, policy.Spec.Ingress[0].Ports, 1)
				require.Equal(t, deployment.Spec.Template.Spec.Containers[0].Ports[0].Name, policy.Spec.Ingress[0].Ports[0].Port.StrVal)
			}
			require.Equal(t, 1, matched, "%s: %s", name, policy.Name)
		}
	}
	require.Empty(t, all[networkingv1.NetworkPolicy](t, c.objects(t, "mode=replace", "networkPolicy.enabled=true"), "NetworkPolicy"), "the host's network knows no policies")
}

// testAlerts requires that the PrometheusRule is the shipped one, with the page of the runbooks that the values name.
func (c *chart) testAlerts(t *testing.T) {
	const page = "https://git.example.com/team/runbooks.md"
	var want, got struct {
		Spec struct{ Groups []any }
	}
	require.NoError(t, yaml.Unmarshal([]byte(monitoring.PrometheusRule(page)), &want))
	rendered, err := c.template(t, "monitoring.prometheusRule=true", "monitoring.labels.release=prometheus", "monitoring.runbooks="+page)
	require.NoError(t, err)
	for _, u := range parse(t, rendered) {
		if u.GetKind() == "PrometheusRule" {
			require.Equal(t, "prometheus", u.GetLabels()["release"])
			data, err := json.Marshal(u.Object)
			require.NoError(t, err)
			require.NoError(t, yaml.Unmarshal(data, &got))
		}
	}
	require.NotEmpty(t, want.Spec.Groups)
	require.Equal(t, want, got)
}

// testRelease installs the chart, changes the profile, goes back, and uninstalls it.
func (c *chart) testRelease(t *testing.T) {
	release := []string{"--namespace", metav1.NamespaceSystem}
	deployment := func() *appsv1.Deployment {
		d, err := c.client.AppsV1().Deployments(metav1.NamespaceSystem).Get(t.Context(), "zonewise-scheduler", metav1.GetOptions{})
		require.NoError(t, err)
		return d
	}
	const checksum = "zonewise.dev/config-checksum"

	out, err := c.do(t, append([]string{"install", "zonewise", "charts/zonewise", "--set", "rbac.viewer=true"}, release...)...)
	require.NoError(t, err)
	require.Contains(t, out, "WARNING: image.repository is a placeholder")
	require.Contains(t, out, "schedulerName: zonewise-scheduler")
	require.Contains(t, out, "helm uninstall zonewise --namespace kube-system")
	installed := deployment()
	c.mustRun(t, "wait", "--for=condition=Established", "--timeout=60s", "crd/podgroups.scheduling.x-k8s.io", "crd/zonespreadpolicies.zonewise.dev")
	c.podGroup(t, "gang", 2)
	c.waitAllowed(t, schedulerAccount, nil, may{verb: "create", resource: "pods/binding", in: "shop"},
		may{verb: "update", resource: "leases.coordination.k8s.io", in: "kube-system", name: "zonewise-scheduler"})
	require.False(t, c.allowed(t, schedulerAccount, nil, may{verb: "update", resource: "leases.coordination.k8s.io", in: "kube-system", name: "kube-scheduler"}))
	c.testViewer(t)

	_, err = c.do(t, append([]string{"upgrade", "zonewise", "charts/zonewise", "--set", "plugins.permitGate.args.scheduleTimeout=90s", "--reset-then-reuse-values"}, release...)...)
	require.NoError(t, err)
	upgraded := deployment()
	require.Equal(t, installed.UID, upgraded.UID)
	require.NotEqual(t, installed.Spec.Template.Annotations[checksum], upgraded.Spec.Template.Annotations[checksum], "a changed profile rolls the Deployment")
	profile, err := c.client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(t.Context(), "zonewise-scheduler-config", metav1.GetOptions{})
	require.NoError(t, err)
	require.Contains(t, profile.Data["config.yaml"], "scheduleTimeout: 90s")

	_, err = c.do(t, append([]string{"upgrade", "zonewise", "charts/zonewise", "--set", "replicas=none"}, release...)...)
	require.ErrorContains(t, err, "at '/replicas'")
	_, err = c.do(t, append([]string{"rollback", "zonewise", "1"}, release...)...)
	require.NoError(t, err)
	require.Equal(t, installed.Spec.Template, deployment().Spec.Template)

	_, err = c.do(t, append([]string{"uninstall", "zonewise"}, release...)...)
	require.NoError(t, err)
	c.testNothingIsLeft(t)
	gang := &schedv1alpha1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "gang"}}
	require.NoError(t, c.api.Delete(t.Context(), gang), "what users own stays")
}

// testViewer asks what users of the command line may do.
func (c *chart) testViewer(t *testing.T) {
	viewers := &rbacv1.ClusterRoleBinding{
		ObjectMeta: named("viewers"),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "zonewise-viewer"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "ada"}},
	}
	c.make(t, viewers)
	c.waitAllowed(t, "ada", nil, may{verb: "list", resource: "nodes"}, may{verb: "list", resource: "zonereservations.zonewise.dev"},
		may{verb: "list", resource: "podgroups.scheduling.x-k8s.io", in: "shop"})
	for _, m := range []may{
		{verb: "list", resource: "secrets"},
		{verb: "delete", resource: "pods", in: "shop"},
		{verb: "patch", resource: "zonespreadpolicies.zonewise.dev", in: "shop"},
	} {
		require.False(t, c.allowed(t, "ada", nil, m), "%+v", m)
	}
	require.NoError(t, c.api.Delete(t.Context(), viewers))
}

// testNothingIsLeft requires that of Zonewise only the APIs are in the cluster.
func (c *chart) testNothingIsLeft(t *testing.T) {
	t.Helper()
	left := c.mustRun(t, "get", "--all-namespaces", "-o", "name",
		"clusterroles,clusterrolebindings,roles,rolebindings,serviceaccounts,configmaps,secrets,deployments,poddisruptionbudgets")
	require.NotContains(t, left, "zonewise")
	_, err := c.client.RbacV1().ClusterRoles().Get(t.Context(), "zonewise-scheduler", metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err), "%v", err)
	require.Contains(t, c.mustRun(t, "get", "crds", "-o", "name"), "zonespreadpolicies.zonewise.dev")
}
