package snapshot

import (
	"crypto/sha256"
	"sync"
	"unique"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// maxShared is how many parts a Sharing knows. It bounds what is kept although its pods are gone.
const maxShared = 4096

// Sharing has pods that are alike share memory. Most pods come from few templates, and what the pods of a template have
// in common is most of what they take: containers with their resources, tolerations, constraints, labels, owners. The
// zero value is ready. Its method may be called from several goroutines.
type Sharing struct {
	mu    sync.Mutex // guards parts
	parts map[[sha256.Size]byte]any
}

// Trim trims an object, and has a pod share with others what is equal. Objects that share must not be modified, as
// those of a snapshot never are.
func (s *Sharing) Trim(obj client.Object) {
	Trim(obj)
	pod, ok := obj.(*v1.Pod)
	if !ok {
		return
	}
	own := pod.Spec
	own.NodeName, own.Hostname, own.Volumes, own.Affinity = "", "", nil, nil // these differ within a template
	spec := *shared(s, &own)
	spec.NodeName, spec.Hostname = unique.Make(pod.Spec.NodeName).Value(), pod.Spec.Hostname
	spec.Volumes, spec.Affinity = pod.Spec.Volumes, pod.Spec.Affinity
	if spec.Affinity != nil {
		spec.Affinity = shared(s, spec.Affinity)
	}
	pod.Spec = spec
	origin := shared(s, &metav1.ObjectMeta{
		Namespace: pod.Namespace, GenerateName: pod.GenerateName,
		Annotations: pod.Annotations, OwnerReferences: pod.OwnerReferences,
	})
	pod.Namespace, pod.GenerateName = origin.Namespace, origin.GenerateName
	pod.Annotations, pod.OwnerReferences = origin.Annotations, origin.OwnerReferences
	pod.Labels = shared(s, &metav1.ObjectMeta{Labels: pod.Labels}).Labels
	pod.Status.Phase, pod.Status.QOSClass = unique.Make(pod.Status.Phase).Value(), unique.Make(pod.Status.QOSClass).Value()
	for i := range pod.Status.Conditions {
		c := &pod.Status.Conditions[i]
		c.Type, c.Status = unique.Make(c.Type).Value(), unique.Make(c.Status).Value()
	}
}

// encodable is a part of an object that has an encoding of its own.
type encodable[T any] interface {
	*T
	Marshal() ([]byte, error)
}

// shared returns a part that is equal: the first one that there was.
func shared[T any, P encodable[T]](s *Sharing, part P) P {
	content, err := part.Marshal()
	if err != nil {
		return part
	}
	key := sha256.Sum256(content)
	s.mu.Lock()
	defer s.mu.Unlock()
	if known, ok := s.parts[key].(P); ok {
		return known
	}
	if s.parts == nil || len(s.parts) >= maxShared {
		s.parts = map[[sha256.Size]byte]any{}
	}
	s.parts[key] = part
	return part
}
