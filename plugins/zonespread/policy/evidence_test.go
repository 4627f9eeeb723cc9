package policy_test

import (
	"iter"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"zonewise.dev/plugins/zonespread/policy"
)

type nodeOutcome struct {
	zone    string
	outcome policy.Outcome
}

func outcomes(nodes []nodeOutcome) iter.Seq2[string, policy.Outcome] {
	return func(yield func(string, policy.Outcome) bool) {
		for _, n := range nodes {
			if !yield(n.zone, n.outcome) {
				return
			}
		}
	}
}

func TestGather(t *testing.T) {
	require.Equal(t, map[string]policy.Evidence{
		"full": policy.AllRefused, "fits": policy.TookPod, "unseen": policy.ProvesNothing, "half-seen": policy.ProvesNothing,
	}, policy.Gather(outcomes([]nodeOutcome{
		{"full", policy.Refused},
		{"fits", policy.Refused},
		{"half-seen", policy.NotLookedAt},
		{"unseen", policy.NotLookedAt},
		{"full", policy.Refused},
		{"fits", policy.Fits},
		{"half-seen", policy.Refused},
		{"fits", policy.NotLookedAt},
	})))
	require.Empty(t, policy.Gather(outcomes(nil)))
}

func TestGatherDoesNotDependOnOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		drawn := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) nodeOutcome {
			return nodeOutcome{rapid.SampledFrom([]string{"a", "b"}).Draw(t, "zone"), policy.Outcome(rapid.IntRange(0, 2).Draw(t, "outcome"))}
		}), 0, 8).Draw(t, "nodes")
		want := map[string]policy.Evidence{}
		for _, zone := range []string{"a", "b"} {
			seen, all, some := false, true, false
			for _, n := range drawn {
				if n.zone == zone {
					seen = true
					all = all && n.outcome == policy.Refused
					some = some || n.outcome == policy.Fits
				}
			}
			switch {
			case !seen:
			case some:
				want[zone] = policy.TookPod
			case all:
				want[zone] = policy.AllRefused
			default:
				want[zone] = policy.ProvesNothing
			}
		}
		require.Equal(t, want, policy.Gather(outcomes(rapid.Permutation(drawn).Draw(t, "order"))))
	})
}

func shapePod(change func(*v1.Pod)) *v1.Pod {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-0", UID: "1", Labels: map[string]string{"pod-template-hash": "1"}},
		Spec: v1.PodSpec{
			NodeSelector: map[string]string{"disk": "ssd", "arch": "arm64"},
			Containers: []v1.Container{{
				Image: "web:1",
				Resources: v1.ResourceRequirements{Requests: v1.ResourceList{
					v1.ResourceCPU: resource.MustParse("500m"), v1.ResourceMemory: resource.MustParse("1Gi"),
				}},
				Ports: []v1.ContainerPort{{ContainerPort: 80}},
			}},
			Volumes: []v1.Volume{{Name: "config", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{}}}},
		},
	}
	if change != nil {
		change(pod)
	}
	return pod
}

func TestShape(t *testing.T) {
	same := policy.Shape(shapePod(nil))
	require.Regexp(t, "^[0-9a-f]{32}$", same)
	for name, c := range map[string]func(*v1.Pod){
		"another pod of another revision": func(p *v1.Pod) {
			p.UID, p.Name, p.Labels = "2", "web-1", map[string]string{"pod-template-hash": "2"}
			p.Spec.Containers[0].Image = "web:2"
		},
		"the same amount written differently": func(p *v1.Pod) {
			p.Spec.Containers[0].Resources.Requests[v1.ResourceMemory] = resource.MustParse("1024Mi")
			p.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse("0.5")
		},
		"preferences": func(p *v1.Pod) {
			p.Spec.Affinity = &v1.Affinity{}
			p.Spec.Affinity = nil
			p.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{{MaxSkew: 1}}
		},
	} {
		require.Equal(t, same, policy.Shape(shapePod(c)), name)
	}
	seen := map[string]string{same: "unchanged"}
	for name, c := range map[string]func(*v1.Pod){
		"request": func(p *v1.Pod) {
			p.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse("600m")
		},
		"sidecar":       func(p *v1.Pod) { p.Spec.Containers = append(p.Spec.Containers, p.Spec.Containers[0]) },
		"node selector": func(p *v1.Pod) { p.Spec.NodeSelector["disk"] = "hdd" },
		"toleration":    func(p *v1.Pod) { p.Spec.Tolerations = []v1.Toleration{{Key: "gpu"}} },
		"host port":     func(p *v1.Pod) { p.Spec.Containers[0].Ports[0].HostPort = 80 },
		"priority":      func(p *v1.Pod) { p.Spec.Priority = ptr.To[int32](10) },
		"claim": func(p *v1.Pod) {
			p.Spec.Volumes[0].VolumeSource = v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "data-web-0"}}
		},
		"ephemeral claim": func(p *v1.Pod) {
			p.Spec.Volumes[0].VolumeSource = v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}
		},
		"device": func(p *v1.Pod) { p.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "gpu"}} },
		"required affinity": func(p *v1.Pod) {
			p.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{TopologyKey: "kubernetes.io/hostname"}}}}
		},
	} {
		shape := policy.Shape(shapePod(c))
		require.NotContains(t, seen, shape, name)
		seen[shape] = name
	}
}
