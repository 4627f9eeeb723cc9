package manifests

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"zonewise.dev/test/documents"
	"zonewise.dev/test/internal/oci"
	"zonewise.dev/test/internal/program"
)

// twoReleases makes v0.1.0 and v0.1.1 of this checkout, for one platform, in a clone, and signs them.
const twoReleases = `
. hack/lib.sh
copy_tree "$1"
export GIT_AUTHOR_NAME=test GIT_AUTHOR_EMAIL=test@example.com GIT_COMMITTER_NAME=test GIT_COMMITTER_EMAIL=test@example.com
git -C "$1" init -q
release() {
	sed -i.old "s/^## Unreleased\$/## Unreleased\n\n- Later.\n\n## $3/" "$1/CHANGELOG.md"
	rm "$1/CHANGELOG.md.old"
	git -C "$1" add -A
	git -C "$1" commit -q -m "release $3"
	go -C "$1/hack/release" run . build -version "v$3" -platforms "linux/$2" -cli "linux/$2" -key "$1.key"
}
release "$1" "$2" 0.1.0
release "$1" "$2" 0.1.1
`

// TestStranger has nothing but docs/install.md and the files of two releases: it verifies what it has, installs the
// first release, moves to the second and back. The scheduler is the program of the image that the installed Deployment
// names.
func TestStranger(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "clone")
	writeKey(t, dir+".key")
	_, err := program.Run(repository(t), "bash", "-euo", "pipefail", "-c", twoReleases, "releases", dir, runtime.GOARCH)
	require.NoError(t, err)
	s := &stranger{dist: filepath.Join(dir, "dist"), first: "v0.1.0", second: "v0.1.1"}
	s.readGuide(t)

	t.Run("with Helm", func(t *testing.T) {
		c := startChart(t)
		var before map[string]stays
		for _, b := range s.blocks["From a release"] {
			at := s.first
			if strings.Contains(b.Text, "0.1.1") {
				at = s.second
			}
			s.run(t, c, b, at)
			switch {
			case strings.Contains(b.Text, "openssl"):
				s.testWrongSums(t, c, b)
			case strings.Contains(b.Text, "helm "):
				manifest, err := c.do(t, "get", "manifest", "zonewise", "--namespace", metav1.NamespaceSystem)
				require.NoError(t, err)
				before = s.testRelease(t, c, parse(t, manifest), at, before)
			}
		}
		require.Len(t, before, 3*4, "three times a gang's two pods, its PodGroup, and a pod")
	})
	t.Run("without Helm", func(t *testing.T) {
		c := startChart(t)
		require.Len(t, s.blocks["Without Helm"], 1)
		var before map[string]stays
		for _, at := range []string{s.first, s.second, s.first} {
			s.run(t, c, s.blocks["Without Helm"][0], at)
			manifest, err := os.ReadFile(filepath.Join(s.dist, at, "install-second-scheduler.yaml"))
			require.NoError(t, err)
			before = s.testRelease(t, c, parse(t, string(manifest)), at, before)
		}
	})
}

// writeKey makes a key to sign with.
func writeKey(t *testing.T, file string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600))
}

// stranger has two releases and the guide.
type stranger struct {
	dist          string // has a directory for each release
	first, second string
	blocks        map[string][]documents.Block // of commands, by their section
}

func (s *stranger) readGuide(t *testing.T) {
	t.Helper()
	const path = "docs/install.md"
	text, err := os.ReadFile(filepath.Join(repository(t), path))
	require.NoError(t, err)
	blocks, err := documents.Document{Path: path, Text: string(text)}.Blocks()
	require.NoError(t, err)
	s.blocks = map[string][]documents.Block{}
	for _, b := range blocks {
		if b.Shell() {
			s.blocks[b.Section] = append(s.blocks[b.Section], b)
		}
	}
}

// command is a block, to be run in the directory of a release.
func (s *stranger) command(t *testing.T, c *chart, b documents.Block, dir string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", b.Text)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "KUBECONFIG="+c.kubeconfig, "PATH="+filepath.Dir(c.kubectl)+":"+filepath.Dir(c.helm)+":"+os.Getenv("PATH"))
	return cmd
}

func (s *stranger) run(t *testing.T, c *chart, b documents.Block, release string) {
	t.Helper()
	out, err := s.command(t, c, b, filepath.Join(s.dist, release)).CombinedOutput()
	require.NoError(t, err, "%s:%d:\n%s\n%s", b.Path, b.Line, b.Text, out)
}

// testWrongSums: the commands refuse a list that is not signed, and a file that is not the one in the list.
func (s *stranger) testWrongSums(t *testing.T, c *chart, b documents.Block) {
	t.Helper()
	for _, file := range []string{"SHA256SUMS", "install-crds.yaml"} {
		dir := t.TempDir()
		require.NoError(t, os.CopyFS(dir, os.DirFS(filepath.Join(s.dist, s.first))))
		data, err := os.ReadFile(filepath.Join(dir, file))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), append(data, '\n'), 0o600))
		out, err := s.command(t, c, b, dir).CombinedOutput()
		require.Error(t, err, "%s is changed:\n%s", file, out)
	}
}

// testRelease runs the program of the image that the Deployment in the cluster names, which has to be the release's. It
// places a pod and a gang. What was in the cluster before is there as it was.
func (s *stranger) testRelease(t *testing.T, c *chart, objects []*unstructured.Unstructured, release string, before map[string]stays) map[string]stays {
	t.Helper()
	image := oci.ReadTag(t, filepath.Join(s.dist, release, "oci", "zonewise-scheduler"), release)
	deployed, err := c.client.AppsV1().Deployments(metav1.NamespaceSystem).Get(t.Context(), "zonewise-scheduler", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, "registry.example.com/zonewise/zonewise-scheduler@"+image.Digest, deployed.Spec.Template.Spec.Containers[0].Image)
	require.Equal(t, deployed.Spec.Template.Spec.Containers[0].Image, only[appsv1.Deployment](t, objects, "Deployment").Spec.Template.Spec.Containers[0].Image)

	root := t.TempDir()
	image.For(t, runtime.GOARCH).Unpack(t, root)
	binary := filepath.Join(root, "usr", "local", "bin", "kube-scheduler")
	stamp, err := exec.CommandContext(t.Context(), binary, "--version").Output()
	require.NoError(t, err)
	require.Equal(t, "+zonewise."+release[1:], strings.TrimSpace(string(stamp[strings.Index(string(stamp), "+"):])))

	if before == nil {
		c.mustRun(t, "wait", "--for=condition=Established", "--timeout=60s", "crd/podgroups.scheduling.x-k8s.io", "crd/zonespreadpolicies.zonewise.dev")
		c.make(t, &corev1.Namespace{ObjectMeta: named(namespace)})
		c.node(t, "node", "a", "4")
	}
	_, stop := c.startReplica(t, binary, objects)
	defer stop()
	suffix := string(rune('a' + len(before)/4))
	c.podGroup(t, "gang-"+suffix, 2)
	for _, name := range []string{"single-" + suffix, "first-" + suffix, "second-" + suffix} {
		c.make(t, pod(name, "100m", func(p *corev1.Pod) {
			p.Spec.SchedulerName = "zonewise-scheduler"
			if !strings.HasPrefix(name, "single") {
				p.Labels["scheduling.x-k8s.io/pod-group"] = "gang-" + suffix
			}
		}))
	}
	for _, name := range []string{"single-" + suffix, "first-" + suffix, "second-" + suffix} {
		c.bound(t, name)
	}
	now := c.everything(t)
	for key, earlier := range before {
		require.Equal(t, earlier, now[key], key)
	}
	return now
}
