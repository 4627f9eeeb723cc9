package manifests

import (
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	schedulerv1 "k8s.io/kube-scheduler/config/v1"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"zonewise.dev/test/internal/program"
)

// loadProfile reads a configuration as the scheduler reads it, before it hands the plugins their args.
func loadProfile(t *testing.T, content string) *schedulerconfig.KubeSchedulerConfiguration {
	t.Helper()
	obj, _, err := scheme.Codecs.UniversalDecoder().Decode([]byte(content), nil, nil)
	require.NoError(t, err)
	cfg, ok := obj.(*schedulerconfig.KubeSchedulerConfiguration)
	require.True(t, ok, "%T", obj)
	cfg.APIVersion = schedulerv1.SchemeGroupVersion.String()
	if err := validation.ValidateKubeSchedulerConfiguration(cfg); err != nil {
		require.NoError(t, err)
	}
	return cfg
}

// defaultOf finds the flags that a program's help lists, with their defaults.
var defaultOf = regexp.MustCompile(`(?m)^ +(?:-\w, )?--([\w-]+)(?:.*\(default "?([^")]*)"?\))?`)

// flags has the program parse arguments, and returns the values that its flags then have.
func flags(t *testing.T, args []string) func(name string) string {
	t.Helper()
	binary, err := program.Scheduler(repository(t))
	require.NoError(t, err)
	// It parses what stands before --help, and ends there.
	help, err := exec.CommandContext(t.Context(), binary, append(slices.Clone(args), "--help")...).CombinedOutput()
	require.NoError(t, err, "%s %v\n%s", binary, args, help)
	values := map[string]string{}
	for _, found := range defaultOf.FindAllStringSubmatch(string(help), -1) {
		values[found[1]] = found[2]
	}
	for _, arg := range args {
		if name, value, given := strings.Cut(strings.TrimPrefix(arg, "--"), "="); given {
			values[name] = value
		}
	}
	return func(name string) string {
		require.Contains(t, values, name)
		return values[name]
	}
}

// testDeployment requires that the objects of an overlay fit each other and the scheduler.
func (c *cluster) testDeployment(t *testing.T, overlay string) {
	objects := c.render(t, overlay)
	deployment := only[appsv1.Deployment](t, objects, "Deployment")
	profile := only[corev1.ConfigMap](t, objects, "ConfigMap")
	account := only[corev1.ServiceAccount](t, objects, "ServiceAccount")
	budget := only[policyv1.PodDisruptionBudget](t, objects, "PodDisruptionBudget")
	role := only[rbacv1.Role](t, objects, "Role")
	// Who deletes the overlay keeps what users own.
	require.False(t, slices.ContainsFunc(objects, func(u *unstructured.Unstructured) bool { return u.GetKind() == "CustomResourceDefinition" }))

	pod := deployment.Spec.Template.Spec
	require.Len(t, pod.Containers, 1)
	container := pod.Containers[0]
	flag := flags(t, container.Args)

	// The profile is where the scheduler looks for it, and one that it takes.
	require.Len(t, pod.Volumes, 1)
	require.Equal(t, profile.Name, pod.Volumes[0].ConfigMap.Name)
	require.Len(t, container.VolumeMounts, 1)
	require.Equal(t, pod.Volumes[0].Name, container.VolumeMounts[0].Name)
	dir, key := path.Split(flag("config"))
	require.Equal(t, container.VolumeMounts[0].MountPath, path.Clean(dir))
	cfg := loadProfile(t, profile.Data[key])
	require.Empty(t, cfg.ClientConnection.Kubeconfig, "in a pod the ServiceAccount is used")

	// The replicas elect one, on the lease that they may write.
	require.True(t, cfg.LeaderElection.LeaderElect)
	require.Greater(t, *deployment.Spec.Replicas, int32(1))
	require.Equal(t, role.Namespace, cfg.LeaderElection.ResourceNamespace)
	var names []string
	for _, rule := range role.Rules {
		names = append(names, rule.ResourceNames...)
	}
	require.Equal(t, []string{cfg.LeaderElection.ResourceName}, names)
	wantLease, wantName := "kube-scheduler", corev1.DefaultSchedulerName
	if overlay == "overlays/second-scheduler" {
		wantLease, wantName = "zonewise-scheduler", "zonewise-scheduler"
	}
	require.Equal(t, wantLease, cfg.LeaderElection.ResourceName)
	require.Len(t, cfg.Profiles, 1)
	require.Equal(t, wantName, cfg.Profiles[0].SchedulerName)

	// The probes ask where the scheduler listens.
	require.Len(t, container.Ports, 1)
	require.Equal(t, flag("secure-port"), strconv.Itoa(int(container.Ports[0].ContainerPort)))
	for name, probe := range map[string]*corev1.Probe{"startup": container.StartupProbe, "liveness": container.LivenessProbe, "readiness": container.ReadinessProbe} {
		require.NotNil(t, probe, name)
		require.Equal(t, container.Ports[0].Name, probe.HTTPGet.Port.StrVal, name)
		require.Equal(t, corev1.URISchemeHTTPS, probe.HTTPGet.Scheme, name)
		if bind := flag("bind-address"); bind != "0.0.0.0" {
			require.Equal(t, bind, probe.HTTPGet.Host, name)
		} else {
			require.Empty(t, probe.HTTPGet.Host, name)
		}
	}
	require.Equal(t, "/readyz", container.ReadinessProbe.HTTPGet.Path)

	require.Equal(t, account.Name, pod.ServiceAccountName)
	require.Equal(t, account.Namespace, deployment.Namespace)
	require.Equal(t, "system-cluster-critical", pod.PriorityClassName)
	require.True(t, *container.SecurityContext.ReadOnlyRootFilesystem)
	require.NotZero(t, container.Resources.Requests.Cpu().MilliValue())
	require.NotZero(t, container.Resources.Requests.Memory().Value())

	// Budget and spread are about these pods.
	podLabels := labels.Set(deployment.Spec.Template.Labels)
	selectors := []*metav1.LabelSelector{deployment.Spec.Selector, budget.Spec.Selector}
	var keys []string
	for _, constraint := range pod.TopologySpreadConstraints {
		selectors = append(selectors, constraint.LabelSelector)
		keys = append(keys, constraint.TopologyKey)
	}
	require.Equal(t, []string{corev1.LabelTopologyZone, corev1.LabelHostname}, keys)
	for _, s := range selectors {
		selector, err := metav1.LabelSelectorAsSelector(s)
		require.NoError(t, err)
		require.False(t, selector.Empty())
		require.True(t, selector.Matches(podLabels), selector)
	}
}

// restricted makes a namespace of the strictest Pod Security Standard, and returns its name.
func (c *cluster) restricted(t *testing.T) string {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "restricted-", Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
	}}
	c.make(t, namespace)
	return namespace.Name
}

// wouldCreate asks the API server for a pod of a template, without effect.
func (c *cluster) wouldCreate(t *testing.T, namespace string, template *corev1.PodTemplateSpec) error {
	t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "scheduler", Labels: template.Labels}, Spec: template.Spec}
	return c.api.Create(t.Context(), p, client.DryRunAll, client.FieldValidation(metav1.FieldValidationStrict))
}

// testPodSecurity requires that the pods keep to the strictest Pod Security Standard, but for the host's
// network where the overlay wants it.
func (c *cluster) testPodSecurity(t *testing.T, overlay string) {
	namespace := c.restricted(t)
	template := only[appsv1.Deployment](t, c.render(t, overlay), "Deployment").Spec.Template
	if template.Spec.HostNetwork {
		err := c.wouldCreate(t, namespace, &template)
		require.True(t, apierrors.IsForbidden(err), "%v", err)
		require.ErrorContains(t, err, "hostNetwork=true")
		template.Spec.HostNetwork = false
		// On the host's network only, the host of a probe is harmless.
		for _, probe := range []*corev1.Probe{template.Spec.Containers[0].StartupProbe, template.Spec.Containers[0].LivenessProbe, template.Spec.Containers[0].ReadinessProbe} {
			probe.HTTPGet.Host = ""
		}
	}
	require.NoError(t, c.wouldCreate(t, namespace, &template))

	template.Spec.Containers[0].SecurityContext.Capabilities = nil
	require.ErrorContains(t, c.wouldCreate(t, namespace, &template), "unrestricted capabilities", "the standard is enforced")
}

// testStaticPod applies the patches to the static pod that kubeadm 1.37.2 makes (testdata), with the
// library that kubeadm and kubectl share, and requires that the scheduler would start with the profile.
func (c *cluster) testStaticPod(t *testing.T) {
	stock, err := os.ReadFile(filepath.Join("testdata", "kubeadm-kube-scheduler.yaml"))
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "kube-scheduler.yaml")
	require.NoError(t, os.WriteFile(file, stock, 0o600))
	patches, err := filepath.Glob(filepath.Join(c.dir, "kubeadm", "patches", "*"))
	require.NoError(t, err)
	require.Len(t, patches, 2)
	// kubeadm goes by the names: target, order, type.
	for _, patch := range patches {
		name, typ, ok := strings.Cut(strings.TrimSuffix(filepath.Base(patch), ".yaml"), "+")
		require.True(t, ok, patch)
		require.True(t, strings.HasPrefix(name, "kube-scheduler"), patch)
		out := c.mustRun(t, "patch", "--local", "-f", file, "--type", typ, "--patch-file", patch, "-o", "yaml")
		require.NoError(t, os.WriteFile(file, []byte(out), 0o600))
	}
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	var before, after corev1.Pod
	require.NoError(t, yaml.UnmarshalStrict(stock, &before))
	require.NoError(t, yaml.UnmarshalStrict(data, &after))

	// kubeadm's own settings are as before, and the profile's path is added to them.
	old, patched := before.Spec.Containers[0], after.Spec.Containers[0]
	require.Len(t, after.Spec.Containers, 1)
	require.Equal(t, "kube-scheduler", patched.Command[0], "the image has it on its PATH")
	require.Equal(t, old.Command, patched.Command[:len(old.Command)])
	require.Len(t, patched.Command, len(old.Command)+1)
	flag := flags(t, patched.Command[1:])
	require.NotEqual(t, old.Image, patched.Image)
	require.Equal(t, old.LivenessProbe, patched.LivenessProbe)

	// The profile is mounted, and names the kubeconfig that is mounted too.
	dir, name := path.Split(flag("config"))
	mounts := map[string]string{}
	for _, m := range patched.VolumeMounts {
		mounts[m.MountPath] = m.Name
		require.True(t, m.ReadOnly)
	}
	require.Contains(t, mounts, path.Clean(dir))
	profile, err := os.ReadFile(filepath.Join(c.dir, "kubeadm", name))
	require.NoError(t, err)
	cfg := loadProfile(t, string(profile))
	require.Contains(t, mounts, cfg.ClientConnection.Kubeconfig)
	require.Equal(t, flag("kubeconfig"), cfg.ClientConnection.Kubeconfig)
	require.Equal(t, "kube-scheduler", cfg.LeaderElection.ResourceName)
	require.Equal(t, corev1.DefaultSchedulerName, cfg.Profiles[0].SchedulerName)
	for _, v := range after.Spec.Volumes {
		require.NotNil(t, v.HostPath, "a static pod can mount nothing else")
	}

	// The API server takes the pod; the kubelet would refuse what it refuses.
	u := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal(data, &u.Object))
	out := filepath.Join(t.TempDir(), "pod.yaml")
	require.NoError(t, os.WriteFile(out, data, 0o600))
	c.mustRun(t, "apply", "--server-side", "--validate=strict", "--dry-run=server", "-f", out)
}
