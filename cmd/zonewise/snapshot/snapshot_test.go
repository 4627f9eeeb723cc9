package snapshot_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"zonewise.dev/cmd/zonewise/clitest"
	"zonewise.dev/cmd/zonewise/snapshot"
	"zonewise.dev/cmd/zonewise/status"
	"zonewise.dev/cmd/zonewise/world"
)

func TestFilesGiveTheSameAnswers(t *testing.T) {
	want := clitest.Story().Snapshot
	for _, name := range []string{"s.json", "s.json.gz"} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), name)
			saved := clitest.Story().Snapshot
			snapshot.Trim(saved)
			require.NoError(t, snapshot.Save(file, saved))
			info, err := os.Stat(file)
			require.NoError(t, err)
			require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
			got, err := snapshot.Load(file)
			require.NoError(t, err)
			require.Equal(t, clitest.Now, got.TakenAt)
			require.Equal(t, status.Build(world.New(want, clitest.Now), ""), status.Build(world.New(got, clitest.Now), ""))
		})
	}
}

func TestTrimLeavesOutWhatIsPrivate(t *testing.T) {
	c := clitest.New()
	c.Node("node", "a", "1", "1Gi").Annotations = map[string]string{"token": "private"}
	spec := clitest.Plain("1", "1Gi")
	spec.Containers[0].Env = []corev1.EnvVar{{Name: "TOKEN", Value: "private"}}
	spec.Containers[0].Command = []string{"private"}
	spec.Containers[0].Image = "private"
	spec.InitContainers = []corev1.Container{{Name: "init", Args: []string{"private"}}}
	spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "private"}}}}
	pod := c.Pod("pod", "node", spec, map[string]string{"app": "web"})
	pod.Annotations = map[string]string{"note": "private", corev1.MirrorPodAnnotationKey: "mirror"}
	pod.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "private"}}
	pod.Status.PodIP = "private"
	c.Deployment("web", 1, "1", "1Gi", func(t *corev1.PodTemplateSpec) {
		t.Annotations = map[string]string{"note": "private"}
		t.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "TOKEN", Value: "private"}}
	})
	before := world.RequestsOf(pod)
	var file bytes.Buffer
	snapshot.Trim(c.Snapshot)
	require.NoError(t, snapshot.Encode(&file, c.Snapshot))
	require.NotContains(t, file.String(), "private")
	require.Equal(t, before, world.RequestsOf(&c.Pods[0]))
	require.Contains(t, c.Pods[0].Annotations, corev1.MirrorPodAnnotationKey)
}

func TestWhatIsNoSnapshot(t *testing.T) {
	for content, want := range map[string]string{
		"":                 "not a snapshot: EOF",
		"{":                "not a snapshot: unexpected EOF",
		"kind: Pod":        "not a snapshot: invalid character",
		`{"kind": "Pod"}`:  `not a snapshot: want apiVersion cli.zonewise.dev/v1 and kind Snapshot, got "" and "Pod"`,
		"\x1f\x8bnot gzip": "gzip",
		`{"apiVersion": "cli.zonewise.dev/v1", "kind": "Snapshot"}`: "nodes: the snapshot has none",
	} {
		file := filepath.Join(t.TempDir(), "s")
		require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
		_, err := snapshot.Load(file)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, file)
	}
	_, err := snapshot.Load("missing")
	require.ErrorContains(t, err, "missing")
}

// FuzzDecode requires that whatever is taken for a snapshot can be looked at.
func FuzzDecode(f *testing.F) {
	for _, s := range []*snapshot.Snapshot{clitest.Story().Snapshot, {APIVersion: "cli.zonewise.dev/v1", Kind: "Snapshot", Nodes: make([]corev1.Node, 1)}} {
		var file bytes.Buffer
		require.NoError(f, snapshot.Encode(&file, s))
		f.Add(file.Bytes())
	}
	f.Fuzz(func(_ *testing.T, data []byte) {
		s, err := snapshot.Decode(bytes.NewReader(data))
		if err != nil || len(s.Pods) > 100 {
			return
		}
		w := world.New(s, clitest.Now)
		status.Build(w, "")
		for i := range s.Pods {
			w.Ask(&s.Pods[i])
		}
	})
}
