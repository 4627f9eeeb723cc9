package snapshot_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/cluster/census"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/sim/kinds"
	"zonewise.dev/test/clitest"
)

func TestFilesKeepSnapshots(t *testing.T) {
	want := clitest.Story().Snapshot
	everything(want)
	for _, name := range []string{"s.json", "s.json.gz"} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), name)
			require.NoError(t, snapshot.Save(file, want))
			info, err := os.Stat(file)
			require.NoError(t, err)
			require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
			got, err := snapshot.Load(file)
			require.NoError(t, err)
			require.Equal(t, clitest.Now, got.TakenAt)
			require.Equal(t, encoded(t, want), encoded(t, got))
			for _, obj := range kinds.All() {
				require.True(t, slices.ContainsFunc(got.Objects(), func(o client.Object) bool {
					return reflect.TypeOf(o) == reflect.TypeOf(obj)
				}), "%T", obj)
			}
		})
	}
}

// everything adds an object of each kind.
func everything(s *snapshot.Snapshot) {
	for _, obj := range kinds.All() {
		obj.SetName("one-more")
		obj.SetNamespace("other")
		s.Add(obj)
	}
}

func encoded(t *testing.T, s *snapshot.Snapshot) string {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, snapshot.Encode(&out, s))
	return out.String()
}

func TestTrimLeavesOutWhatIsPrivate(t *testing.T) {
	c := clitest.New()
	c.Node("node", "a", "1", "1Gi").Annotations = map[string]string{"token": "private"}
	spec := clitest.Plain("1", "1Gi")
	spec.Containers[0].Env = []corev1.EnvVar{{Name: "TOKEN", Value: "private"}}
	spec.Containers[0].Command = []string{"private"}
	spec.Containers[0].Image = "private"
	spec.InitContainers = []corev1.Container{{Name: "init", Args: []string{"private"}}}
	spec.Volumes = []corev1.Volume{
		{Name: "v", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "private"}}},
		{Name: "g", VolumeSource: corev1.VolumeSource{GCEPersistentDisk: &corev1.GCEPersistentDiskVolumeSource{PDName: "private"}}},
		{Name: "a", VolumeSource: corev1.VolumeSource{AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: "vol-private"}}},
	}
	pod := c.Pod("pod", "node", spec, map[string]string{"app": "web"})
	pod.Annotations = map[string]string{"note": "private", corev1.MirrorPodAnnotationKey: "mirror"}
	pod.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "private"}}
	pod.Status.PodIP = "private"
	c.Deployment("web", 1, "1", "1Gi", func(t *corev1.PodTemplateSpec) {
		t.Annotations = map[string]string{"note": "private"}
		t.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "TOKEN", Value: "private"}}
	})
	c.Add(
		&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v"}, Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: "driver", VolumeHandle: "private", VolumeAttributes: map[string]string{"a": "private"},
				NodePublishSecretRef: &corev1.SecretReference{Name: "private"},
			}},
		}},
		&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "g"}, Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeSource: corev1.PersistentVolumeSource{GCEPersistentDisk: &corev1.GCEPersistentDiskVolumeSource{PDName: "private"}},
		}},
		&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeSource: corev1.PersistentVolumeSource{AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: "aws://a/vol-private"}},
		}},
		&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "l"}, Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "private"}},
			MountOptions:           []string{"private"},
		}},
		&storagev1.StorageClass{
			ObjectMeta: metav1.ObjectMeta{Name: "s"}, Parameters: map[string]string{"a": "private"},
		},
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: corev1.ServiceSpec{ExternalName: "private"}},
		&resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{
			Config: []resourcev1.DeviceClaimConfiguration{{DeviceConfiguration: resourcev1.DeviceConfiguration{
				Opaque: &resourcev1.OpaqueDeviceConfiguration{Driver: "private"},
			}}},
		}}, Status: resourcev1.ResourceClaimStatus{Devices: []resourcev1.AllocatedDeviceStatus{{
			Driver: "private", Data: &runtime.RawExtension{Raw: []byte(`{"a": "private"}`)},
			NetworkData: &resourcev1.NetworkDeviceData{IPs: []string{"private"}},
		}}}},
	)
	c.Node("images", "a", "1", "1Gi").Status.Images = []corev1.ContainerImage{
		{Names: []string{"private", "private:latest", "private:2"}, SizeBytes: 7},
	}
	before := census.Requests(pod)
	for _, obj := range c.Objects() {
		snapshot.Trim(obj)
		once := obj.DeepCopyObject()
		snapshot.Trim(obj) // an informer may do so
		require.Equal(t, once, obj)
	}
	text := encoded(t, c.Snapshot)
	require.NotContains(t, text, "private")
	require.Equal(t, before, census.Requests(pod))
	require.Contains(t, pod.Annotations, corev1.MirrorPodAnnotationKey)
	nodes := snapshot.List[*corev1.Node](c.Snapshot)
	names := nodes[len(nodes)-1].Status.Images[0].Names
	require.Equal(t, names[0], names[1], "the same image")
	require.Equal(t, names[0], pod.Spec.Containers[0].Image)
	require.NotEqual(t, names[0], names[2])
}

// TestSaveReplacesTheWholeFile: whoever reads the old file still reads all of it, and nobody but the owner reads the
// new one.
func TestSaveReplacesTheWholeFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "s.json")
	require.NoError(t, os.WriteFile(file, []byte("the old one"), 0o644)) //nolint:gosec // what Save mends
	old, err := os.Open(file)
	require.NoError(t, err)
	defer old.Close()
	require.NoError(t, snapshot.Save(file, clitest.Story().Snapshot))
	content, err := io.ReadAll(old)
	require.NoError(t, err)
	require.Equal(t, "the old one", string(content))
	info, err := os.Stat(file)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	left, err := os.ReadDir(filepath.Dir(file))
	require.NoError(t, err)
	require.Len(t, left, 1, "no temporary file stays")
}

// TestTrimKeepsDisksApart: filters count disks, and keep pods apart that share one, also those of drivers that
// Kubernetes has itself.
func TestTrimKeepsDisksApart(t *testing.T) {
	source := func(name string) []corev1.VolumeSource {
		return []corev1.VolumeSource{
			{ISCSI: &corev1.ISCSIVolumeSource{IQN: name, TargetPortal: "private"}},
			{RBD: &corev1.RBDVolumeSource{
				CephMonitors: []string{"private"}, RBDPool: "private", RBDImage: name, RadosUser: "private",
			}},
			{AzureDisk: &corev1.AzureDiskVolumeSource{DiskName: name, DataDiskURI: name}},
			{Cinder: &corev1.CinderVolumeSource{VolumeID: name}},
		}
	}
	trimmed := func(name string) []corev1.Volume {
		pod := &corev1.Pod{}
		for _, v := range source(name) {
			pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "v", VolumeSource: v})
		}
		snapshot.Trim(pod)
		once := pod.DeepCopy()
		snapshot.Trim(pod)
		require.Equal(t, once, pod)
		return pod.Spec.Volumes
	}
	first, same, other := trimmed("private-1"), trimmed("private-1"), trimmed("private-2")
	require.Len(t, first, len(source("")))
	require.Equal(t, first, same)
	for i := range first {
		require.NotEqual(t, first[i], other[i])
	}
	data, err := json.Marshal(first)
	require.NoError(t, err)
	require.NotContains(t, string(data), "private")
}

func TestWhatIsNoSnapshot(t *testing.T) {
	const head = `{"apiVersion": "cli.zonewise.dev/v2", "kind": "Snapshot", "objects": %d}`
	for content, want := range map[string]string{
		"":                   "not a snapshot: EOF",
		"{":                  "not a snapshot: unexpected EOF",
		"[]":                 "not a snapshot: json: cannot unmarshal array",
		"kind: Pod":          "not a snapshot: invalid character",
		`{"kind": "Pod"}`:    `not a snapshot: want apiVersion cli.zonewise.dev/v2 and kind Snapshot, got "" and "Pod"`,
		"\x1f\x8bnot gzip":   "gzip",
		fmt.Sprintf(head, 0): "the snapshot has no nodes",
		fmt.Sprintf(head, 2) + `{"apiVersion": "v1", "kind": "Node"}`:                 "the file ends after 1 of 2 objects: EOF",
		fmt.Sprintf(head, 1) + `{"apiVersion": "v1"}`:                                 "object 1 of 1: Object 'Kind' is missing",
		fmt.Sprintf(head, 1) + `{"apiVersion": "v1", "kind": "NodeList"}`:             "the snapshot has no nodes",
		fmt.Sprintf(head, 1) + `{"apiVersion": "v1", "kind": "Node", "metadata": []}`: "object 1 of 1: json: cannot unmarshal array",
		fmt.Sprintf(head, 1) + `{"apiVersion": "example.com/v1", "kind": "Later"}`:    "the snapshot has no nodes",
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
	one := snapshot.New(clitest.Now)
	one.Add(&corev1.Node{})
	for _, s := range []*snapshot.Snapshot{clitest.Story().Snapshot, one} {
		var file bytes.Buffer
		require.NoError(f, snapshot.Encode(&file, s))
		f.Add(file.Bytes())
	}
	f.Fuzz(func(_ *testing.T, data []byte) {
		s, err := snapshot.Decode(bytes.NewReader(data))
		if err != nil || len(s.Objects()) > 300 {
			return
		}
		c := census.Take(s)
		c.ZoneRooms()
		c.Spreads("")
		for _, key := range c.GangKeys() {
			c.Gang(key)
		}
	})
}

// TestFilesOfOtherVersions: kinds that the file's writer did not look for, and kinds that this program does not know,
// are missing.
func TestFilesOfOtherVersions(t *testing.T) {
	c := clitest.New()
	c.Node("node-a", "a", "4", "8Gi")
	first, objects, ok := strings.Cut(encoded(t, c.Snapshot), "\n")
	require.True(t, ok)
	n := strings.Count(objects, "\n")
	read := func(head, objects string) []snapshot.Missing {
		s, err := snapshot.Decode(strings.NewReader(head + "\n" + objects))
		require.NoError(t, err)
		return s.Missing
	}
	require.Empty(t, read(first, objects))
	older := strings.Replace(first, `"zonereservations.zonewise.dev",`, "", 1)
	require.NotEqual(t, first, older)
	require.Equal(t, []snapshot.Missing{{
		Resource: "zonereservations.zonewise.dev", Reason: snapshot.Unreadable, Detail: "the file is of a version of the program that did not know them",
	}}, read(older, objects))
	later := strings.Replace(first, fmt.Sprintf(`"objects":%d`, n), fmt.Sprintf(`"objects":%d`, n+2), 1)
	require.NotEqual(t, first, later)
	unknown := `{"apiVersion":"zonewise.dev/v1beta1","kind":"ZoneReservation","metadata":{"name":"failover"},"spec":{}}` + "\n"
	require.Equal(t, []snapshot.Missing{{Resource: "zonereservations.zonewise.dev", Reason: snapshot.OtherVersion, Detail: "zonewise.dev/v1beta1"}}, read(later, unknown+unknown+objects))
}

// read returns a pod as a reader has it: with memory of its own.
func read(t *testing.T, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	content, err := pod.Marshal()
	require.NoError(t, err)
	out := &corev1.Pod{}
	require.NoError(t, out.Unmarshal(content))
	return out
}

// TestSharing: pods of one template share what they have in common, and each is what it is without sharing.
func TestSharing(t *testing.T) {
	c := clitest.New()
	add := c.Deployment("web", 3, "1", "1Gi", func(t *corev1.PodTemplateSpec) {
		t.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{clitest.ZoneSpread("web", 1)}
		t.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{}}
	})
	other := c.Deployment("api", 1, "2", "1Gi", nil)
	var sharing snapshot.Sharing
	var pods []*corev1.Pod
	for _, pod := range []*corev1.Pod{add("a"), add("b"), add(""), other("a")} {
		pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: pod.Name},
		}}}
		alone, shared := read(t, pod), read(t, pod)
		snapshot.Trim(alone)
		for range 2 { // an informer may trim an object more than once
			sharing.Trim(shared)
		}
		require.Equal(t, alone, shared)
		pods = append(pods, shared)
	}
	web, again, waiting, api := pods[0], pods[1], pods[2], pods[3]
	for _, pod := range []*corev1.Pod{again, waiting} {
		require.Same(t, &web.Spec.Containers[0], &pod.Spec.Containers[0])
		require.Same(t, &web.Spec.TopologySpreadConstraints[0], &pod.Spec.TopologySpreadConstraints[0])
		require.Same(t, web.Spec.Affinity, pod.Spec.Affinity)
		require.Same(t, &web.OwnerReferences[0], &pod.OwnerReferences[0])
	}
	require.NotSame(t, &web.Spec.Containers[0], &api.Spec.Containers[0])
}

// TestSharingForgets: what is known is bounded, whatever comes and goes, and pods are what they are after that, too.
func TestSharingForgets(t *testing.T) {
	var sharing snapshot.Sharing
	for i := range 10_000 {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": fmt.Sprint(i)}}}
		sharing.Trim(pod)
		require.Equal(t, fmt.Sprint(i), pod.Labels["app"])
	}
	require.LessOrEqual(t, sharing.Known(), 4096)
}
