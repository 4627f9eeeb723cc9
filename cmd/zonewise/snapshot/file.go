package snapshot

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Save writes a snapshot to a file that only its owner may read.
func Save(path string, s *Snapshot) (err error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if closed := file.Close(); err == nil {
			err = closed
		}
	}()
	if !strings.HasSuffix(path, ".gz") {
		return Encode(file, s)
	}
	zip := gzip.NewWriter(file)
	if err := Encode(zip, s); err != nil {
		return err
	}
	return zip.Close()
}

// Encode writes a snapshot.
func Encode(w io.Writer, s *Snapshot) error {
	buffered := bufio.NewWriterSize(w, 1<<20)
	if err := json.NewEncoder(buffered).Encode(s); err != nil {
		return err
	}
	return buffered.Flush()
}

// Load reads a snapshot from a file, compressed or not.
func Load(path string) (*Snapshot, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	s, err := Decode(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

// Decode reads what Encode wrote, compressed or not.
func Decode(r io.Reader) (*Snapshot, error) {
	buffered := bufio.NewReaderSize(r, 1<<20)
	var in io.Reader = buffered
	if magic, err := buffered.Peek(2); err == nil && magic[0] == 0x1f && magic[1] == 0x8b {
		zip, err := gzip.NewReader(buffered)
		if err != nil {
			return nil, err
		}
		in = zip
	}
	s := &Snapshot{}
	if err := json.NewDecoder(in).Decode(s); err != nil {
		return nil, fmt.Errorf("not a snapshot: %w", err)
	}
	return s, s.check()
}

// Trim leaves out what no command here asks for and what people would not want in a file: environments,
// commands, images, annotations but those that mark mirror pods, and who wrote which field.
func Trim(s *Snapshot) {
	for i := range s.Pods {
		pod := &s.Pods[i]
		trimMeta(&pod.ObjectMeta)
		trimPod(&pod.Spec)
		pod.Status = corev1.PodStatus{
			Phase: pod.Status.Phase, Conditions: pod.Status.Conditions, Reason: pod.Status.Reason,
			NominatedNodeName: pod.Status.NominatedNodeName, StartTime: pod.Status.StartTime,
		}
	}
	for i := range s.Nodes {
		trimMeta(&s.Nodes[i].ObjectMeta)
		s.Nodes[i].Status.Images = nil
		s.Nodes[i].Status.NodeInfo = corev1.NodeSystemInfo{}
	}
	for i := range s.Namespaces {
		trimMeta(&s.Namespaces[i].ObjectMeta)
	}
	for i := range s.Deployments {
		trimMeta(&s.Deployments[i].ObjectMeta)
		trimTemplate(&s.Deployments[i].Spec.Template)
	}
	for i := range s.ReplicaSets {
		trimMeta(&s.ReplicaSets[i].ObjectMeta)
		trimTemplate(&s.ReplicaSets[i].Spec.Template)
	}
	for i := range s.StatefulSets {
		trimMeta(&s.StatefulSets[i].ObjectMeta)
		trimTemplate(&s.StatefulSets[i].Spec.Template)
	}
	for i := range s.Jobs {
		trimMeta(&s.Jobs[i].ObjectMeta)
		trimTemplate(&s.Jobs[i].Spec.Template)
	}
	for i := range s.ReplicationControllers {
		trimMeta(&s.ReplicationControllers[i].ObjectMeta)
		if t := s.ReplicationControllers[i].Spec.Template; t != nil {
			trimTemplate(t)
		}
	}
	for i := range s.Volumes {
		trimMeta(&s.Volumes[i].ObjectMeta)
		s.Volumes[i].Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{}
	}
	for i := range s.Claims {
		trimMeta(&s.Claims[i].ObjectMeta)
	}
}

func trimMeta(m *metav1.ObjectMeta) {
	m.ManagedFields = nil
	mirror, ok := m.Annotations[corev1.MirrorPodAnnotationKey]
	m.Annotations = nil
	if ok {
		m.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: mirror}
	}
}

func trimTemplate(t *corev1.PodTemplateSpec) {
	t.Annotations = nil
	trimPod(&t.Spec)
}

func trimPod(spec *corev1.PodSpec) {
	trim := func(list []corev1.Container) {
		for i := range list {
			list[i] = corev1.Container{Name: list[i].Name, Resources: list[i].Resources, Ports: list[i].Ports, RestartPolicy: list[i].RestartPolicy}
		}
	}
	trim(spec.Containers)
	trim(spec.InitContainers)
	spec.EphemeralContainers = nil
	var volumes []corev1.Volume
	for _, v := range spec.Volumes {
		if v.PersistentVolumeClaim != nil || v.Ephemeral != nil {
			volumes = append(volumes, v)
		}
	}
	spec.Volumes = volumes
}
