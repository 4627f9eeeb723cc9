package policy

import (
	"encoding/hex"
	"encoding/json"
	"hash/fnv"
	"iter"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"
)

// Outcome is what the filters said about one node that is eligible for a pod.
type Outcome uint8

// The outcomes.
const (
	// NotLookedAt: the node has no status of its own, or one that says nothing about its capacity: a refusal by
	// ZoneSpread itself or by PermitGate.
	NotLookedAt Outcome = iota
	// Refused: another plugin refused the pod on this node.
	Refused
	// Fits: all filters passed.
	Fits
)

// Evidence is what one scheduling attempt shows about a zone.
type Evidence uint8

// The kinds of evidence.
const (
	// ProvesNothing: some node was not looked at.
	ProvesNothing Evidence = iota
	// AllRefused: every eligible node of the zone, and there is one, refused the pod.
	AllRefused
	// TookPod: the pod fits on some node of the zone.
	TookPod
)

// Gather sums up the outcomes of one attempt by zone. nodes yields the zone and the outcome of every node
// that is eligible for the pod; nodes that are not must be left out.
func Gather(nodes iter.Seq2[string, Outcome]) map[string]Evidence {
	evidence := map[string]Evidence{}
	for zone, outcome := range nodes {
		was, seen := evidence[zone]
		switch {
		case outcome == Fits || was == TookPod:
			evidence[zone] = TookPod
		case outcome == NotLookedAt || seen && was == ProvesNothing:
			evidence[zone] = ProvesNothing
		default:
			evidence[zone] = AllRefused
		}
	}
	return evidence
}

// ObserveAttempt takes in what one attempt to place a pod of the given shape showed (PostFilter; Reserve with
// TookPod for the zone that was chosen). It returns whether there is something new to remember.
func (m *Machine) ObserveAttempt(now time.Time, shape string, evidence map[string]Evidence) bool {
	changed := m.purge(now)
	for name, e := range evidence {
		z := m.zones[name]
		if z == nil || !z.hadNodes {
			continue // no node of it has been observed
		}
		switch e {
		case AllRefused:
			changed = m.refused(z, shape, now) || changed
		case TookPod:
			changed = m.tookPod(z, shape, now) || changed
		case ProvesNothing:
		}
	}
	return changed
}

func (m *Machine) refused(z *zoneMemory, shape string, now time.Time) bool {
	s, at := z.shapes[shape], roundUp(now)
	switch {
	case s == nil:
		if z.shapes == nil {
			z.shapes = map[string]*shapeMemory{}
		}
		z.shapes[shape] = &shapeMemory{refusedSince: at, lastRefused: at}
		z.limitShapes()
	case !s.refusedSince.set(), !m.full(s, now) && s.lastRefused.passed(EvidenceGap, now):
		s.refusedSince, s.lastRefused = at, at
	case s.lastRefused.passed(lastRefusedStep, now):
		s.lastRefused = at
	default:
		return false
	}
	return true
}

func (m *Machine) tookPod(z *zoneMemory, shape string, now time.Time) bool {
	s := z.shapes[shape]
	if s == nil || !s.refusedSince.set() {
		return false
	}
	if m.full(s, now) && m.policy.recoveryWindow > 0 {
		s.recoveringSince = roundUp(now)
	}
	s.refusedSince, s.lastRefused = 0, 0
	if !s.recoveringSince.set() {
		delete(z.shapes, shape)
	}
	return true
}

// limitShapes drops the shapes that were seen longest ago.
func (z *zoneMemory) limitShapes() {
	for len(z.shapes) > MaxShapes {
		var oldest string
		for shape, s := range z.shapes {
			o := z.shapes[oldest]
			if o == nil || s.seen() < o.seen() || s.seen() == o.seen() && shape < oldest {
				oldest = shape
			}
		}
		delete(z.shapes, oldest)
	}
}

func (s *shapeMemory) seen() seconds { return max(s.lastRefused, s.recoveringSince) }

// Shape returns a hash of what filters look at in a pod besides labels: pods of one shape are refused by the same
// nodes. Claims are part of it by name, so that a pod whose volume is bound to a zone finds the other zones full for
// itself alone. The hash is stored in the status; 32 hexadecimal digits.
func Shape(pod *v1.Pod) string {
	spec := &pod.Spec
	looked := struct {
		Requests     v1.ResourceList
		NodeSelector map[string]string
		Required     *v1.Affinity
		Tolerations  []v1.Toleration
		HostPorts    []v1.ContainerPort
		Claims       []string
		Devices      []v1.PodResourceClaim
		Priority     *int32
		RuntimeClass *string
		OS           *v1.PodOS
	}{
		Requests:     resource.PodRequests(pod, resource.PodResourcesOptions{}),
		NodeSelector: spec.NodeSelector,
		Required:     requiredAffinity(spec.Affinity),
		Tolerations:  spec.Tolerations,
		Devices:      spec.ResourceClaims,
		Priority:     spec.Priority,
		RuntimeClass: spec.RuntimeClassName,
		OS:           spec.OS,
	}
	for _, containers := range [][]v1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			for _, port := range containers[i].Ports {
				if port.HostPort > 0 || spec.HostNetwork {
					looked.HostPorts = append(looked.HostPorts, v1.ContainerPort{HostPort: port.HostPort, HostIP: port.HostIP, Protocol: port.Protocol, ContainerPort: port.ContainerPort})
				}
			}
		}
	}
	for i := range spec.Volumes {
		switch v := &spec.Volumes[i]; {
		case v.PersistentVolumeClaim != nil:
			looked.Claims = append(looked.Claims, v.PersistentVolumeClaim.ClaimName)
		case v.Ephemeral != nil:
			looked.Claims = append(looked.Claims, pod.Name+"-"+v.Name)
		}
	}
	slices.Sort(looked.Claims)
	h := fnv.New128a()
	// Maps are encoded in the order of their keys. None of the fields can fail to encode.
	if err := json.NewEncoder(h).Encode(looked); err != nil {
		panic(err)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// requiredAffinity leaves out what filters do not look at.
func requiredAffinity(a *v1.Affinity) *v1.Affinity {
	if a == nil {
		return nil
	}
	required := &v1.Affinity{}
	if a.NodeAffinity != nil {
		required.NodeAffinity = &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution}
	}
	if a.PodAffinity != nil {
		required.PodAffinity = &v1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution}
	}
	if a.PodAntiAffinity != nil {
		required.PodAntiAffinity = &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution}
	}
	return required
}
