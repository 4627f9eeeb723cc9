package integration

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/test/build"
)

// TestMembersWithZonalVolumes: each member has a volume in one zone, which no proposal knows, and the zones of the volumes are not
// those that a proposal would take. Pods beside the gang come to their end all the time. One round is enough: a member whose proposed
// nodes are in the wrong zone is tried once more, on all nodes.
func TestMembersWithZonalVolumes(t *testing.T) {
	const members = 100
	w := newWorld(t)
	var nodes []string
	for i := range 30 {
		nodes = append(nodes, fmt.Sprintf("%c%d", 'a'+i%3, i))
	}
	w.addNodes("8", nodes...)
	s := w.startScheduler()
	beside := w.create(newPods(len(nodes), "beside", "2", build.Label("app", "beside"))...)
	w.waitBoundCount(len(beside), labelled("beside"))

	w.createGroup("train", members, 0)
	var gang []*v1.Pod
	for i := range members {
		zone := string("aaabbc"[i%6]) // half of them, a third and a sixth
		gang = append(gang, newPod(fmt.Sprintf("train-%d", i), "1", build.Member("train"), build.Label("app", "train"), w.withVolumeIn(zoneOf(zone))))
	}
	done, stop := make(chan struct{}), make(chan struct{})
	endChurn := sync.OnceFunc(func() {
		close(stop)
		<-done
	})
	t.Cleanup(endChurn)
	go func() {
		defer close(done)
		ticker := time.NewTicker(500 * time.Millisecond)
		defer ticker.Stop()
		for _, pod := range beside {
			select {
			case <-stop:
				return
			case <-ticker.C:
				_ = w.cp.client.Delete(w.ctx, pod, client.GracePeriodSeconds(0)) // what is still there goes with the world
			}
		}
	}()
	w.create(gang[:members-1]...)
	began := time.Now()
	w.create(gang[members-1])
	w.waitBoundCount(members, labelled("train"))
	took := time.Since(began)
	endChurn()

	require.Equal(t, map[string]int{"zone-a": 51, "zone-b": 33, "zone-c": 16}, w.byZone(labelled("train")))
	attempts := s.log.lines(`"Attempting to schedule pod" pod="` + w.namespace + "/train-")
	tried := map[string]int{}
	for _, line := range attempts {
		_, name, _ := strings.Cut(line, `pod="`)
		name, _, _ = strings.Cut(name, `"`)
		tried[name]++
	}
	t.Logf("%d members were bound %s after the last of them was created, with %d attempts; %s",
		members, took.Round(time.Millisecond), len(attempts), strings.Join(s.log.lines("Gang is whole"), ""))
	rolledBack := slices.DeleteFunc(s.log.lines("Gang rolled back"), func(line string) bool { return !strings.Contains(line, w.namespace+"/train") })
	require.Empty(t, rolledBack)
	for name, n := range tried {
		require.LessOrEqual(t, n, 3, "%s: as the scout, on the proposed nodes, on all nodes", name)
	}
}

// withVolumeIn gives the pod a claim that is bound to a volume of a zone. Both stay after the test: the controllers that would take their
// finalizers away do not run.
func (w *world) withVolumeIn(zone string) podOption {
	return func(pod *v1.Pod) {
		w.t.Helper()
		size := v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}
		modes := []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}
		class := ""
		claim := &v1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: w.namespace, Name: pod.Name,
				Annotations: map[string]string{"pv.kubernetes.io/bind-completed": "yes"}, // by its controller, which does not run
			},
			Spec: v1.PersistentVolumeClaimSpec{
				AccessModes: modes, StorageClassName: &class, VolumeName: w.namespace + "-" + pod.Name,
				Resources: v1.VolumeResourceRequirements{Requests: size},
			},
		}
		require.NoError(w.t, w.cp.client.Create(w.ctx, claim))
		volume := &v1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: claim.Spec.VolumeName, Labels: map[string]string{v1.LabelTopologyZone: zone}},
			Spec: v1.PersistentVolumeSpec{
				Capacity: size, AccessModes: modes,
				ClaimRef:               &v1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: w.namespace, Name: claim.Name, UID: claim.UID},
				PersistentVolumeSource: v1.PersistentVolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/tmp"}},
				NodeAffinity: &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
					MatchExpressions: []v1.NodeSelectorRequirement{{Key: v1.LabelTopologyZone, Operator: v1.NodeSelectorOpIn, Values: []string{zone}}},
				}}}},
			},
		}
		require.NoError(w.t, w.cp.client.Create(w.ctx, volume))
		pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: "data", VolumeSource: v1.VolumeSource{
			PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name},
		}})
	}
}
