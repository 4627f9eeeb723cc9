package buy

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// OwnerLabel has the UID of the object for which a CapacityBuffer and a PodTemplate ask, on both and on the pods of
	// the template.
	OwnerLabel = "zonewise.dev/bought-for"
	// zoneLabel has the zone, on both; not on those that ask for any zone.
	zoneLabel = "zonewise.dev/bought-in"
	// promisedAnnotation is what was promised, and fallAnnotation a Fall, its time and number, on a CapacityBuffer.
	promisedAnnotation = "zonewise.dev/promised"
	fallAnnotation     = "zonewise.dev/falls"
	// image is that of the pods, which are never made.
	image = "registry.k8s.io/pause:3.10"
	// longestPrefix is how much of the owner's name is in the names of the objects. Autoscalers put the name into
	// longer ones.
	longestPrefix = 150
)

// Group and Kind are those of CapacityBuffers.
const (
	Group = "autoscaling.x-k8s.io"
	Kind  = "CapacityBuffer"
)

// Versions are the versions of CapacityBuffers that can be written, the preferred one first.
func Versions() []schema.GroupVersionKind {
	return []schema.GroupVersionKind{
		{Group: Group, Version: "v1beta1", Kind: Kind}, {Group: Group, Version: "v1alpha1", Kind: Kind},
	}
}

// name is the name of a buffer. It has the owner's UID in it: an object that is created again under the old name has
// buffers of its own.
func (d *Demand) name(zone string, requests v1.ResourceList, placing *Placing) string {
	sum := sha256.Sum256([]byte(strings.Join([]string{string(d.Owner.UID), zone, shapeKey(requests, placing)}, "\x00")))
	prefix := strings.ToLower(d.Owner.Name)
	return strings.TrimRight(prefix[:min(len(prefix), longestPrefix)], "-.") + "-" + hex.EncodeToString(sum[:5])
}

// labels are those of both objects of a buffer and of the pods.
func (d *Demand) labels() map[string]string {
	own := map[string]string{}
	maps.Copy(own, d.Buy.Labels)
	own[OwnerLabel] = string(d.Owner.UID)
	return own
}

// metadata is that of both objects of a buffer.
func (d *Demand) metadata(b *Buffer) metav1.ObjectMeta {
	own := d.labels()
	if b.Zone != "" {
		own[zoneLabel] = b.Zone
	}
	return metav1.ObjectMeta{
		Namespace: d.Buy.Namespace, Name: b.Name, Labels: own, OwnerReferences: []metav1.OwnerReference{d.Owner},
	}
}

// PodTemplate returns the pods of a buffer whose Requests are known. Policies for pods apply to them, since an
// autoscaler may have the API server complete them.
func (d *Demand) PodTemplate(b *Buffer) *v1.PodTemplate {
	placing := &d.Placing
	if b.Placing != nil {
		placing = b.Placing
	}
	selector := maps.Clone(placing.NodeSelector)
	if b.Zone != "" {
		if selector == nil {
			selector = map[string]string{}
		}
		selector[v1.LabelTopologyZone] = b.Zone
	}
	t := &v1.PodTemplate{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodTemplate"}, ObjectMeta: d.metadata(b),
		Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: d.labels()}, Spec: v1.PodSpec{
			NodeSelector: selector, Tolerations: placing.Tolerations, PriorityClassName: d.Buy.PriorityClassName,
			AutomountServiceAccountToken: new(false),
			SecurityContext: &v1.PodSecurityContext{
				RunAsNonRoot: new(true), SeccompProfile: &v1.SeccompProfile{Type: v1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []v1.Container{{
				Name: "room", Image: image,
				Resources: v1.ResourceRequirements{Requests: b.Requests, Limits: notOvercommitted(b.Requests)},
				SecurityContext: &v1.SecurityContext{
					AllowPrivilegeEscalation: new(false), Capabilities: &v1.Capabilities{Drop: []v1.Capability{"ALL"}},
				},
			}},
		}},
	}
	same := &metav1.LabelSelector{MatchLabels: map[string]string{OwnerLabel: string(d.Owner.UID)}}
	affinity := &v1.Affinity{}
	if placing.Affinity != nil {
		affinity.NodeAffinity = &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: placing.Affinity}
		t.Template.Spec.Affinity = affinity
	}
	switch {
	case placing.PerNode == 1:
		apart := []v1.PodAffinityTerm{{TopologyKey: v1.LabelHostname, LabelSelector: same}}
		affinity.PodAntiAffinity = &v1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: append(apart, placing.Apart...),
		}
		t.Template.Spec.Affinity = affinity
	case placing.PerNode > 1:
		// With more domains demanded than there are nodes, the least count is 0, and no node has more than maxSkew.
		t.Template.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{{
			TopologyKey: v1.LabelHostname, MaxSkew: placing.PerNode, MinDomains: new(int32(1 << 20)),
			WhenUnsatisfiable: v1.DoNotSchedule, LabelSelector: same,
		}}
	}
	return t
}

// notOvercommitted returns the requests that the API server demands to be limits as well.
func notOvercommitted(requests v1.ResourceList) v1.ResourceList {
	out := v1.ResourceList{}
	for name, quantity := range requests {
		switch name {
		case v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage:
		default:
			out[name] = quantity
		}
	}
	return out
}

// CapacityBuffer returns the object by which an autoscaler is asked for a buffer, in one of Versions.
func (d *Demand) CapacityBuffer(b *Buffer, version schema.GroupVersionKind) *unstructured.Unstructured {
	about := d.metadata(b)
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"podTemplateRef": map[string]any{"name": b.Name}, "replicas": int64(b.Asked),
	}}}
	u.SetGroupVersionKind(version)
	u.SetNamespace(about.Namespace)
	u.SetName(about.Name)
	u.SetLabels(about.Labels)
	u.SetOwnerReferences(about.OwnerReferences)
	state := map[string]string{promisedAnnotation: strconv.Itoa(int(b.Promised))}
	if b.Fall != nil {
		state[fallAnnotation] = fmt.Sprintf("%s %d", b.Fall.Since.UTC().Format(time.RFC3339), b.Fall.Most)
	}
	u.SetAnnotations(state)
	return u
}

// Read returns what a CapacityBuffer asks for. What somebody else has changed about it so that it cannot be read counts
// as not there.
func Read(u *unstructured.Unstructured) Buffer {
	replicas, _, _ := unstructured.NestedInt64(u.Object, "spec", "replicas")
	b := Buffer{Name: u.GetName(), Zone: u.GetLabels()[zoneLabel], Asked: int32(min(max(0, replicas), 1<<30))} //nolint:gosec // bounded
	b.Promised = b.Asked
	if n, err := strconv.ParseInt(u.GetAnnotations()[promisedAnnotation], 10, 32); err == nil {
		b.Promised = int32(max(0, n))
	}
	since, most, _ := strings.Cut(u.GetAnnotations()[fallAnnotation], " ")
	at, err := time.Parse(time.RFC3339, since)
	n, notNumber := strconv.ParseInt(most, 10, 32)
	if err == nil && notNumber == nil {
		b.Fall = &Fall{Since: at, Most: int32(max(0, n))}
	}
	return b
}

// Conditions returns what an autoscaler says of a CapacityBuffer.
func Conditions(u *unstructured.Unstructured) []metav1.Condition {
	var out []metav1.Condition
	all, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for i := range all {
		c, ok := all[i].(map[string]any)
		if !ok {
			continue
		}
		text := func(field string) string { s, _, _ := unstructured.NestedString(c, field); return s }
		out = append(out, metav1.Condition{
			Type: text("type"), Status: metav1.ConditionStatus(text("status")), Reason: text("reason"),
			Message: text("message"),
		})
	}
	return out
}

// limitedByQuotas is the condition of a CapacityBuffer that says bad news when it is True.
const limitedByQuotas = "LimitedByQuotas"

// Answer is what an autoscaler says of a CapacityBuffer, in one line; empty if it has not said anything.
func Answer(conditions []metav1.Condition) string {
	var out []string
	for i := range conditions {
		c := &conditions[i]
		line := fmt.Sprintf("%s=%s (%s)", c.Type, c.Status, c.Reason)
		if c.Message != "" && (c.Status != metav1.ConditionTrue || c.Type == limitedByQuotas) {
			line += ": " + c.Message
		}
		out = append(out, line)
	}
	return strings.Join(out, "; ")
}

// SameState reports whether two CapacityBuffers have the same Fall and the same promise.
func SameState(a, b *unstructured.Unstructured) bool {
	return a.GetAnnotations()[fallAnnotation] == b.GetAnnotations()[fallAnnotation] &&
		a.GetAnnotations()[promisedAnnotation] == b.GetAnnotations()[promisedAnnotation]
}
