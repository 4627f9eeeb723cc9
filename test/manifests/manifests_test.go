package manifests

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	schedv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/internal/controlplane"
	"zonewise.dev/manifests"
	"zonewise.dev/sim/kinds"
)

// overlays are the kustomizations that operators install.
var overlays = []string{"overlays/replace-kube-scheduler", "overlays/second-scheduler"}

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "4"); err != nil { // the tests wait more than they compute
		fmt.Fprintln(os.Stderr, "test/manifests:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// TestManifests is one test, since its parts build on each other.
func TestManifests(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	t.Run("the server accepts all", c.testServerAccepts)
	t.Run("a typo is refused", c.testTypoIsRefused)
	for _, overlay := range overlays {
		t.Run(overlay+"/deployment", func(t *testing.T) { c.testDeployment(t, overlay) })
		t.Run(overlay+"/pod security", func(t *testing.T) { c.testPodSecurity(t, overlay) })
	}
	t.Run("kubeadm's static pod", c.testStaticPod)

	// From here on the files are applied for real, in the order of docs/install.md.
	t.Run("PodGroup CRD", c.testPodGroupCRD)
	t.Run("constraints for autoscalers", c.testAutoscalerConstraints)
	t.Run("deletion costs and nothing else", c.testDeletionCostsAdmission)
	for _, overlay := range overlays {
		t.Run(overlay+"/permissions", func(t *testing.T) { c.testPermissions(t, overlay) })
	}
	t.Run("kubeadm's user", c.testPermissionsOfKubeadmsUser)
	t.Run("least privilege", c.testLeastPrivilege)
}

// cluster is an API server and the files of manifests/ as the package embeds them.
type cluster struct {
	dir        string // the files
	kubectl    string // the path of kubectl
	kubeconfig string // the path of the administrator's kubeconfig
	auditLog   string // the path of the API server's audit log
	config     *rest.Config
	client     kubernetes.Interface
	api        client.Client
}

// auditPolicy logs every request of a ServiceAccount when it is answered, without its body, and a watch when it starts
// too.
const auditPolicy = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  userGroups: ["system:serviceaccounts"]
`

func startCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{dir: filepath.Join(t.TempDir(), "manifests")}
	require.NoError(t, os.CopyFS(c.dir, manifests.FS))

	tmp := t.TempDir()
	policy := filepath.Join(tmp, "audit-policy.yaml")
	require.NoError(t, os.WriteFile(policy, []byte(auditPolicy), 0o600))
	c.auditLog = filepath.Join(tmp, "audit.log")

	plane, err := controlplane.Start(controlplane.Options{
		Assets: filepath.Join(repository(t), "bin"), Dir: tmp,
		Flags: map[string]string{"audit-policy-file": policy, "audit-log-path": c.auditLog},
		// Without it no request shows that an owner reference needs a permission.
		Admission: []string{"OwnerReferencesPermissionEnforcement"},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, plane.Stop()) })
	c.config, c.kubectl, c.kubeconfig = plane.Config, plane.Program("kubectl"), plane.Admin
	c.client = kubernetes.NewForConfigOrDie(c.config)
	c.api, err = client.New(c.config, client.Options{Scheme: kinds.Scheme})
	require.NoError(t, err)
	return c
}

// make creates objects, in order.
func (c *cluster) make(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		require.NoError(t, c.api.Create(t.Context(), o), o.GetName())
	}
}

// named is the metadata of an object that has a name alone.
func named(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }

// run runs kubectl as the administrator, and returns what it prints on standard output.
func (c *cluster) run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	return c.exec(t, nil, c.kubectl, append([]string{"--kubeconfig", c.kubeconfig}, args...)...)
}

// exec runs a program with an input in the directory of the files, and returns what it prints on standard
// output.
func (c *cluster) exec(t *testing.T, stdin io.Reader, program string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir = c.dir
	cmd.Stdin = stdin
	cmd.Env = append(os.Environ(), "HOME="+filepath.Dir(c.kubeconfig)) // for its cache
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", filepath.Base(program), strings.Join(args, " "), err, stderr.String())
	}
	return string(out), nil
}

func (c *cluster) mustRun(t *testing.T, args ...string) string {
	t.Helper()
	out, err := c.run(t, args...)
	require.NoError(t, err)
	return out
}

// render returns the objects of a kustomization.
func (c *cluster) render(t *testing.T, dir string) []*unstructured.Unstructured {
	t.Helper()
	return parse(t, c.mustRun(t, "kustomize", dir))
}

// parse returns the objects of a stream of YAML documents.
func parse(t *testing.T, stream string) []*unstructured.Unstructured {
	t.Helper()
	var objects []*unstructured.Unstructured
	d := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(stream), 4096)
	for {
		u := &unstructured.Unstructured{}
		err := d.Decode(u)
		if errors.Is(err, io.EOF) {
			require.NotEmpty(t, objects)
			return objects
		}
		require.NoError(t, err)
		if u.Object != nil { // a document of comments alone
			objects = append(objects, u)
		}
	}
}

// repository returns the root of the repository.
func repository(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	require.NoError(t, err)
	return root
}

// all returns the objects of a kind, decoded strictly.
func all[T any](t *testing.T, objects []*unstructured.Unstructured, kind string) []*T {
	t.Helper()
	var found []*T
	for _, u := range objects {
		if u.GetKind() != kind {
			continue
		}
		obj := new(T)
		require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(u.Object, obj, true))
		found = append(found, obj)
	}
	return found
}

// only returns the one object of the kind of T among the objects.
func only[T any](t *testing.T, objects []*unstructured.Unstructured, kind string) *T {
	t.Helper()
	found := all[T](t, objects, kind)
	require.Len(t, found, 1, kind)
	return found[0]
}

// apply applies a kustomization the way docs/install.md says.
func (c *cluster) apply(t *testing.T, dir string, flags ...string) (string, error) {
	t.Helper()
	return c.run(t, append([]string{"apply", "--server-side", "--validate=strict", "-k", dir}, flags...)...)
}

func (c *cluster) testServerAccepts(t *testing.T) {
	for _, dir := range append([]string{"crds", "rbac", "base", "kubeadm", c.withController(t, overlays[0], "buy", "native-gangs", "rebalance", "rebalance-evict", "gang-budgets", "deletion-costs", "autoscaler-constraints")}, overlays...) {
		t.Run(dir, func(t *testing.T) {
			out, err := c.apply(t, dir, "--dry-run=server")
			require.NoError(t, err)
			lines := strings.Split(strings.TrimSpace(out), "\n")
			require.Len(t, lines, len(c.render(t, dir)))
			for _, line := range lines {
				require.Contains(t, line, "(server dry run)")
			}
		})
	}
}

// withController writes a kustomization of an overlay with the component controller, as docs/survival.md says, and with
// those that turn on more of its parts, and returns its directory.
func (c *cluster) withController(t *testing.T, overlay string, parts ...string) string {
	t.Helper()
	dir, components := "controller-"+filepath.Base(overlay), "../components/controller"
	for _, part := range parts {
		dir, components = dir+"-"+part, components+", ../components/"+part
	}
	require.NoError(t, os.MkdirAll(filepath.Join(c.dir, dir), 0o750))
	require.NoError(t, os.WriteFile(filepath.Join(c.dir, dir, "kustomization.yaml"), []byte("apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [../"+
		overlay+"]\ncomponents: ["+components+"]\n"), 0o600))
	return dir
}

// testTypoIsRefused shows that the validation above would have found a field that does not exist.
func (c *cluster) testTypoIsRefused(t *testing.T) {
	file := filepath.Join(c.dir, "base", "deployment.yaml")
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	wrong := strings.Replace(string(data), "readOnlyRootFilesystem:", "readonlyRootFilesystem:", 1)
	require.NotEqual(t, string(data), wrong)
	require.NoError(t, os.WriteFile(file, []byte(wrong), 0o600))
	defer func() { require.NoError(t, os.WriteFile(file, data, 0o600)) }()

	_, err = c.apply(t, "overlays/second-scheduler", "--dry-run=server")
	require.ErrorContains(t, err, "readonlyRootFilesystem")
}

func (c *cluster) testPodGroupCRD(t *testing.T) {
	_, err := c.apply(t, "crds")
	require.NoError(t, err)
	c.mustRun(t, "wait", "--for=condition=Established", "--timeout=60s", "crd/podgroups.scheduling.x-k8s.io", "crd/zonespreadpolicies.zonewise.dev")

	for _, tc := range []struct {
		name    string
		spec    map[string]any
		refused string
	}{
		{name: "none", spec: map[string]any{}},
		{name: "one", spec: map[string]any{"minMember": int64(1)}},
		{name: "all", spec: map[string]any{"minMember": int64(3), "scheduleTimeoutSeconds": int64(30), "minResources": map[string]any{"cpu": "3", "memory": "1Gi"}}},
		{name: "zero", spec: map[string]any{"minMember": int64(0)}, refused: "spec.minMember"},
		{name: "negative", spec: map[string]any{"minMember": int64(-1)}, refused: "spec.minMember"},
		{name: "text", spec: map[string]any{"minMember": "three"}, refused: "spec.minMember"},
		{name: "resources", spec: map[string]any{"minMember": int64(1), "minResources": map[string]any{"cpu": "many"}}, refused: "spec.minResources.cpu"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := c.api.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": schedv1alpha1.SchemeGroupVersion.String(), "kind": "PodGroup",
				"metadata": map[string]any{"namespace": metav1.NamespaceDefault, "name": tc.name}, "spec": tc.spec,
			}}, client.FieldValidation(metav1.FieldValidationStrict))
			if tc.refused == "" {
				require.NoError(t, err)
				return
			}
			require.True(t, apierrors.IsInvalid(err), "%v", err)
			require.ErrorContains(t, err, tc.refused)
		})
	}
	require.Equal(t, "podgroup.scheduling.x-k8s.io/all\npodgroup.scheduling.x-k8s.io/none\npodgroup.scheduling.x-k8s.io/one\n",
		c.mustRun(t, "get", "pg", "-o", "name"), "by its short name, without those that were refused")
}
