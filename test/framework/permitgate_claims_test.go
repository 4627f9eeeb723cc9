package framework

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	"k8s.io/utils/ptr"
)

// What the proposal does not count, devices, volumes and resources that the profile ignores, is for the filters to
// decide.

const (
	gpu   = "example.com/gpu"
	class = "gpu.example.com"
)

// addDevices gives nodes so many devices each. The class serves an extended resource if it is not empty.
func (c *cluster) addDevices(perNode int, extended string, nodes ...string) {
	c.t.Helper()
	of := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: class}}
	if extended != "" {
		of.Spec.ExtendedResourceName = &extended
	}
	c.add(of)
	for _, node := range nodes {
		slice := &resourcev1.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{Name: node},
			Spec: resourcev1.ResourceSliceSpec{
				NodeName: &node, Driver: "driver.example.com", Pool: resourcev1.ResourcePool{Name: node, ResourceSliceCount: 1},
			},
		}
		for i := range perNode {
			slice.Spec.Devices = append(slice.Spec.Devices, resourcev1.Device{Name: fmt.Sprintf("device-%d", i)})
		}
		c.add(slice)
	}
}

// addClaim creates a ResourceClaim for one device, which expressions of CEL select.
func (c *cluster) addClaim(name string, selectors ...string) {
	c.t.Helper()
	exactly := &resourcev1.ExactDeviceRequest{DeviceClassName: class, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1}
	for _, expression := range selectors {
		exactly.Selectors = append(exactly.Selectors, resourcev1.DeviceSelector{CEL: &resourcev1.CELDeviceSelector{Expression: expression}})
	}
	c.add(&resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("claim-" + name)},
		Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{
			Name: "device", Exactly: exactly,
		}}}},
	})
}

// TestGangsThatLackDevicesComeToRest although every round that fails gives devices, nodes and nominations back, for
// which the scheduler's queue and the other gang hope.
func TestGangsThatLackDevicesComeToRest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newGangCluster(t, 64, 64)
		c.addDevices(1, "", "node-0", "node-1")
		c.start(withArgs(slowBackoff))
		c.createGang("g", 3, c.claiming)
		c.createGang("h", 3, c.claiming)
		// A gang has ten rounds and a few while its backoff grows, of three to six cycles, and then one each four
		// minutes, or a fifth less.
		c.pass(4 * time.Minute)
		growing := c.cycles.Load()
		require.Less(t, growing, int64(2*16*6))
		c.pass(20 * time.Minute)
		require.LessOrEqual(t, c.cycles.Load()-growing, int64(2*7*6))
		require.Greater(t, c.cycles.Load()-growing, int64(2*4*3))
	})
}

// TestMembersThatShareAClaim would wait for each other until their time is up: the claim is allocated when the first of
// them is bound. They are told so and hold nothing.
func TestMembersThatShareAClaim(t *testing.T) {
	type test struct {
		with  func(p *st.PodWrapper, claim string) *st.PodWrapper
		words string
	}
	inBubbles(t, map[string]test{
		"ResourceClaim":        {withDevice, "members share ResourceClaim shared"},
		"WaitForFirstConsumer": {withVolume, "members share PersistentVolumeClaim shared"},
	}, func(t *testing.T, tt test) {
		c := newGangCluster(t, 4)
		c.addDevices(4, "", "node-0")
		c.addClaim("shared")
		c.add(&storagev1.StorageClass{
			ObjectMeta: metav1.ObjectMeta{Name: "late"}, Provisioner: "csi.example.com",
			VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
		})
		c.add(&v1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "shared", UID: "pvc"},
			Spec: v1.PersistentVolumeClaimSpec{
				StorageClassName: ptr.To("late"), AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteMany},
				Resources: v1.VolumeResourceRequirements{Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}},
			},
		})
		c.start(withArgs(slowBackoff))
		c.createGang("g", 2, func(p *st.PodWrapper) *st.PodWrapper { return tt.with(p, "shared") })
		c.requireEvent("PodGroup g GangRolledBack", tt.words)
		c.requireUnbound("g-0", "g-1")
		require.Empty(t, c.mishap.waiting())
		c.requireRoomFor(4)
	})
}

// asking has a pod request one of a resource.
func asking(name v1.ResourceName) change {
	return func(p *st.PodWrapper) *st.PodWrapper {
		p.Spec.Containers[0].Resources.Requests[name] = resource.MustParse("1")
		p.Spec.Containers[0].Resources.Limits = v1.ResourceList{name: resource.MustParse("1")}
		return p
	}
}

// TestResourcesThatTheFiltersDoNotCount: a resource that no node lists may come from devices (DRAExtendedResource), and
// one that the profile ignores from anywhere. The proposal does not call a gang short of it.
func TestResourcesThatTheFiltersDoNotCount(t *testing.T) {
	runInBubble(t, "ignoredResources", func(t *testing.T) {
		c := newGangCluster(t, 3)
		c.edit = func(p *config.KubeSchedulerProfile) {
			for i := range p.PluginConfig {
				if args, ok := p.PluginConfig[i].Args.(*config.NodeResourcesFitArgs); ok {
					args.IgnoredResources = []string{gpu}
				}
			}
		}
		c.start(withArgs(slowBackoff))
		c.requireBound(c.createGang("g", 3, asking(gpu))...)
	})
	runInBubble(t, "counted", func(t *testing.T) {
		c := startGangCluster(t, slowBackoff, 3)
		c.createGang("g", 2, asking(gpu))
		c.requireEvent("PodGroup g GangRolledBack", "short of "+gpu)
		c.requireUnbound("g-0", "g-1")
	})
	runInBubble(t, "served by devices", func(t *testing.T) {
		c := newGangCluster(t, 8, 8)
		c.addDevices(2, gpu, "node-0", "node-1")
		c.start(withArgs(slowBackoff))
		c.requireBound(c.createGang("g", 4, asking(gpu))...)
	})
}

// TestMembersWithZonalVolumes: each member has a volume in one zone, which the proposal does not look at.
func TestMembersWithZonalVolumes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const members = 24
		c := newGangCluster(t)
		zones := []string{"a", "b", "c"}
		for i := range 12 {
			zone := zones[i%3]
			c.addZonalNode(fmt.Sprintf("%s-%d", zone, i), zone, 4)
		}
		c.start(withArgs(slowBackoff))
		c.groups.set("g", members)
		var names []string
		for i := range members {
			name, zone := fmt.Sprintf("g-%d", i), zones[i*i%3]
			names = append(names, name)
			c.addVolume(name, v1.LabelTopologyZone, zone)
			c.create(withVolume(member("g", name), name))
		}
		c.requireBound(names...)
		require.Zero(t, c.recorder.count("PodGroup g GangRolledBack", ""), "a member whose nodes are in the wrong zone is tried once more in the same round")
	})
}

const fpga = "example.com/fpga"

// TestResourceOfAnExtender: what an extender manages and kube-scheduler ignores, no gang is short of, whether nodes
// list it or not: the extender says where it is.
func TestResourceOfAnExtender(t *testing.T) {
	for name, listed := range map[string]string{"no node lists it": "", "a node lists too little": "1"} {
		t.Run(name, func(t *testing.T) {
			var asked atomic.Int64
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked.Add(1)
				var args extenderv1.ExtenderArgs
				if err := json.NewDecoder(r.Body).Decode(&args); err != nil {
					http.Error(w, err.Error(), http.StatusBadRequest)
					return
				}
				_ = json.NewEncoder(w).Encode(extenderv1.ExtenderFilterResult{NodeNames: args.NodeNames})
			}))
			t.Cleanup(server.Close)
			server.Config.SetKeepAlivesEnabled(false) // an open connection is something to wait for, in a bubble
			bubble(t, func(t *testing.T) {
				c := newGangCluster(t, 2, 2)
				if listed != "" {
					c.editNode("node-0", func(node *v1.Node) {
						node.Status.Allocatable[fpga], node.Status.Capacity[fpga] = resource.MustParse(listed), resource.MustParse(listed)
					})
				}
				c.extender = &config.Extender{
					URLPrefix: server.URL, FilterVerb: "filter", NodeCacheCapable: true,
					ManagedResources: []config.ExtenderManagedResource{{Name: fpga, IgnoredByScheduler: true}},
				}
				c.start(withArgs(slowBackoff))
				c.requireBound(c.createGang("g", 4, asking(fpga))...)
				require.Zero(t, c.recorder.count("PodGroup g GangRolledBack", ""))
				require.GreaterOrEqual(t, asked.Load(), int64(4), "the extender was asked about each member")
			})
		})
	}
}

// A member's cycle may end where PermitGate does not hear of it: an earlier PreFilter refuses the pod, and
// DynamicResources, which is the first at PostFilter as shipped, then ends that extension point with an error.

func withVolume(p *st.PodWrapper, claim string) *st.PodWrapper {
	p.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{
		PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
	}}}
	return p
}

func withDevice(p *st.PodWrapper, claim string) *st.PodWrapper {
	p.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "device", ResourceClaimName: &claim}}
	return p
}

// claiming gives a pod a claim of its own for a device.
func (c *cluster) claiming(p *st.PodWrapper) *st.PodWrapper {
	c.addClaim(p.Pod.Name)
	return withDevice(p, p.Pod.Name)
}

const localClass = "local"

// addLocalVolume creates a volume of a node that no claim has yet.
func (c *cluster) addLocalVolume(name, node string) {
	c.t.Helper()
	c.add(&storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: localClass}, Provisioner: "kubernetes.io/no-provisioner",
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
	})
	c.add(&v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)},
		Spec: v1.PersistentVolumeSpec{
			Capacity:               v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")},
			AccessModes:            []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			StorageClassName:       localClass,
			PersistentVolumeSource: v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: "/data"}},
			NodeAffinity: &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
				MatchExpressions: []v1.NodeSelectorRequirement{{Key: v1.LabelHostname, Operator: v1.NodeSelectorOpIn, Values: []string{node}}},
			}}}},
		},
		Status: v1.PersistentVolumeStatus{Phase: v1.VolumeAvailable},
	})
}

// claimingLocalVolume gives a pod a claim of its own for a local volume.
func (c *cluster) claimingLocalVolume(p *st.PodWrapper) *st.PodWrapper {
	c.add(&v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: p.Pod.Name, UID: types.UID("claim-" + p.Pod.Name)},
		Spec: v1.PersistentVolumeClaimSpec{
			StorageClassName: ptr.To(localClass), AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			Resources: v1.VolumeResourceRequirements{Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	})
	return withVolume(p, p.Pod.Name)
}

// TestMemberWhoseCycleEndsElsewhere: its gang holds nothing for it, says why, and starts when the cause is gone.
func TestMemberWhoseCycleEndsElsewhere(t *testing.T) {
	type test struct {
		with   func(p *st.PodWrapper, claim string) *st.PodWrapper
		claim  string
		before func(c *cluster)
		words  string
		cure   func(c *cluster)
	}
	inBubbles(t, map[string]test{
		"PersistentVolumeClaim that does not exist": {
			with: withVolume, claim: "absent", words: "PersistentVolumeClaim absent",
			cure: func(c *cluster) { c.addVolume("absent", v1.LabelHostname, "node-2") },
		},
		"PersistentVolumeClaim that is not bound": {
			with: withVolume, claim: "unbound", words: "g-2",
			before: func(c *cluster) {
				c.add(&v1.PersistentVolumeClaim{
					ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "unbound", UID: "pvc"},
					Spec:       v1.PersistentVolumeClaimSpec{StorageClassName: new(string), AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}},
				})
			},
		},
		"ResourceClaim that does not exist": {
			with: withDevice, claim: "absent", words: "ResourceClaim absent",
			cure: func(c *cluster) { c.addClaim("absent") },
		},
		"error of a device selector": {
			with: withDevice, claim: "broken", words: "g-2",
			before: func(c *cluster) { c.addClaim("broken", `device.attributes["x.example.com"].y == 1`) },
		},
	}, func(t *testing.T, tt test) {
		c := newGangCluster(t, 1, 1, 1)
		c.addDevices(1, "", "node-0", "node-1", "node-2")
		if tt.before != nil {
			tt.before(c)
		}
		c.start(withArgs(`{"initialBackoff": "1s", "maxBackoff": "30s", "bindRehearsal": "Never"}`))
		c.groups.set("g", 3, 900)
		c.create(member("g", "g-0"), member("g", "g-1"), tt.with(member("g", "g-2"), tt.claim))
		c.soon(func() bool { return c.recorder.count("PodGroup g ", tt.words) > 0 })
		others := c.createPlain("plain", 3)
		c.requireBound(others...)
		require.Empty(t, c.boundAmong("g-0", "g-1", "g-2"))
		if tt.cure != nil {
			c.delete(others...)
			tt.cure(c)
			c.requireBound("g-0", "g-1", "g-2")
		}
	})
}
