package sim_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/sim"
	"zonewise.dev/test/build"
)

const storageDriver = "csi.example.com"

func storageClass(name string, changes ...func(*storagev1.StorageClass)) *storagev1.StorageClass {
	c := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: storageDriver, VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer)}
	for _, change := range changes {
		change(c)
	}
	return c
}

func byDefault(c *storagev1.StorageClass) {
	c.Annotations = map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}
}

func immediate(c *storagev1.StorageClass) {
	c.VolumeBindingMode = ptr.To(storagev1.VolumeBindingImmediate)
}

func onlyIn(zone string) func(*storagev1.StorageClass) {
	return func(c *storagev1.StorageClass) {
		c.AllowedTopologies = []v1.TopologySelectorTerm{{MatchLabelExpressions: []v1.TopologySelectorLabelRequirement{{Key: v1.LabelTopologyZone, Values: []string{zone}}}}}
	}
}

// tenGiB is a claim's spec without a class if that is empty.
func tenGiB(class string) v1.PersistentVolumeClaimSpec {
	spec := v1.PersistentVolumeClaimSpec{
		AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
		Resources:   v1.VolumeResourceRequirements{Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("10Gi")}},
	}
	if class != "" {
		spec.StorageClassName = &class
	}
	return spec
}

// scratch gives a pod a generic ephemeral volume.
func scratch(class string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.Volumes = []v1.Volume{{Name: "scratch", VolumeSource: v1.VolumeSource{
			Ephemeral: &v1.EphemeralVolumeSource{VolumeClaimTemplate: &v1.PersistentVolumeClaimTemplate{Spec: tenGiB(class)}},
		}}}
	}
}

// withClaim has a pod use a claim.
func withClaim(name string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}}
	}
}

func claim(name, class string) *v1.PersistentVolumeClaim {
	return &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: tenGiB(class)}
}

// local is a driver whose volumes are on one node, each of which has so much room for them.
func local(room string, nodes ...string) []client.Object {
	out := []client.Object{&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: storageDriver}, Spec: storagev1.CSIDriverSpec{StorageCapacity: ptr.To(true)}}}
	for _, name := range nodes {
		out = append(out, &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{
			Name: storageDriver, NodeID: name, TopologyKeys: []string{v1.LabelHostname},
		}}}}, &storagev1.CSIStorageCapacity{
			ObjectMeta: metav1.ObjectMeta{Namespace: "driver", Name: name}, StorageClassName: "local", Capacity: ptr.To(resource.MustParse(room)),
			MaximumVolumeSize: ptr.To(resource.MustParse(room)), NodeTopology: &metav1.LabelSelector{MatchLabels: map[string]string{v1.LabelHostname: name}},
		})
	}
	return out
}

// TestClaimsGetTheirVolumes: those that are added with pods, and pods' own.
func TestClaimsGetTheirVolumes(t *testing.T) {
	volumeOf := func(zone, size, class string) *v1.PersistentVolume {
		return &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "in-" + zone + "-" + size}, Spec: v1.PersistentVolumeSpec{
			StorageClassName: class, Capacity: v1.ResourceList{v1.ResourceStorage: resource.MustParse(size)}, AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			NodeAffinity: &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
				MatchExpressions: []v1.NodeSelectorRequirement{{Key: v1.LabelTopologyZone, Operator: v1.NodeSelectorOpIn, Values: []string{zone}}},
			}}}},
		}, Status: v1.PersistentVolumeStatus{Phase: v1.VolumeAvailable}}
	}
	const unbound = "pod has unbound immediate PersistentVolumeClaims"
	for name, test := range map[string]struct {
		cluster []client.Object
		class   string
		zone    string // where pods must be; empty: anywhere
		why     string // the pods wait
	}{
		"no class, and no default":             {why: unbound},
		"no class, the default waits":          {cluster: []client.Object{storageClass("standard", byDefault), storageClass("other")}},
		"no class, the default does not":       {cluster: []client.Object{storageClass("standard", byDefault, immediate)}},
		"no class, two defaults, the youngest": {cluster: []client.Object{storageClass("b", byDefault, immediate), storageClass("a", byDefault, onlyIn("b"))}, zone: "b"},
		"an unknown class":                     {class: "none", why: unbound},
		"a class that waits":                   {cluster: []client.Object{storageClass("slow")}, class: "slow"},
		"a class of one zone":                  {cluster: []client.Object{storageClass("zonal", immediate, onlyIn("b"))}, class: "zonal", zone: "b"},
		"a class without a provisioner": {cluster: []client.Object{storageClass("by-hand", immediate, func(c *storagev1.StorageClass) {
			c.Provisioner = "kubernetes.io/no-provisioner"
		})}, class: "by-hand", why: unbound},
		"volumes that are there, the smallest": {
			cluster: []client.Object{volumeOf("a", "5Gi", "by-hand"), volumeOf("a", "20Gi", "by-hand"), volumeOf("b", "10Gi", "by-hand")}, class: "by-hand", zone: "b",
		},
		"volumes of another class": {cluster: []client.Object{volumeOf("b", "10Gi", "other")}, class: "by-hand", why: unbound},
	} {
		for kind, added := range map[string][]client.Object{
			"ephemeral": {pod("web", "web", "1", scratch(test.class))},
			"claim":     {pod("web", "web", "1", withClaim("data")), claim("data", test.class)},
		} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				s := run(t, append([]client.Object{node("node-a", "a", "8"), node("node-b", "b", "8")}, test.cluster...), sim.Options{})
				require.NoError(t, s.Add(added...))
				require.NoError(t, s.Run(t.Context()))
				p, _ := sim.Get[*v1.Pod](s, "shop", "web")
				if test.why != "" {
					require.Equal(t, map[string]int{"": 1}, zones(s))
					require.Contains(t, s.Why(p), test.why)
					return
				}
				require.NotEmpty(t, p.Spec.NodeName, s.Why(p))
				if test.zone != "" {
					require.Equal(t, map[string]int{test.zone: 1}, zones(s))
				}
				for _, c := range sim.List[*v1.PersistentVolumeClaim](s) {
					require.Equal(t, v1.ClaimBound, c.Status.Phase)
					pv, ok := sim.Get[*v1.PersistentVolume](s, "", c.Spec.VolumeName)
					require.True(t, ok)
					require.Equal(t, c.UID, pv.Spec.ClaimRef.UID)
				}
			})
		}
	}
}

// TestVolumesOfAnImmediateClassAreSpread: the claims of one StatefulSet come into one zone after the other.
func TestVolumesOfAnImmediateClassAreSpread(t *testing.T) {
	objects := []client.Object{storageClass("standard", byDefault, immediate)}
	for _, zone := range []string{"a", "b", "c"} {
		objects = append(objects, node("node-"+zone, zone, "8"))
	}
	s := run(t, objects, sim.Options{})
	for i := range 6 {
		name := fmt.Sprintf("db-%d", i)
		require.NoError(t, s.Add(claim("data-"+name, ""), pod(name, "db", "1", withClaim("data-"+name))))
	}
	require.NoError(t, s.Run(t.Context()))
	require.Equal(t, map[string]int{"a": 2, "b": 2, "c": 2}, zones(s))
}

// TestLostPodsGetVolumesElsewhere: of an ephemeral volume a new one is made, whatever its class.
func TestLostPodsGetVolumesElsewhere(t *testing.T) {
	for name, class := range map[string]*storagev1.StorageClass{
		"default": storageClass("standard", byDefault), "immediate": storageClass("standard", byDefault, immediate),
	} {
		t.Run(name, func(t *testing.T) {
			s := run(t, []client.Object{class, node("node-a", "a", "8")}, sim.Options{})
			require.NoError(t, s.Add(pod("web", "web", "1", scratch(""))))
			require.NoError(t, s.Run(t.Context()))
			require.Equal(t, map[string]int{"a": 1}, zones(s))
			require.NoError(t, s.Add(node("node-b", "b", "8")))
			require.Len(t, s.Lose(inZoneA).Displaced, 1)
			require.NoError(t, s.Run(t.Context()))
			require.Equal(t, map[string]int{"b": 1}, zones(s))
			require.Len(t, sim.List[*v1.PersistentVolume](s), 1)
		})
	}
}

// TestStorageIsUsedUp: a driver's volumes fit as long as what it has left is enough, and not longer. What a lost pod's
// volume took is free again.
func TestStorageIsUsedUp(t *testing.T) {
	for name, class := range map[string]*storagev1.StorageClass{"waits": storageClass("local"), "immediate": storageClass("local", immediate)} {
		t.Run(name, func(t *testing.T) {
			s := run(t, append(local("25Gi", "node-a", "node-b"), class, node("node-a", "a", "8"), node("node-b", "b", "8")), sim.Options{})
			for i := range 5 {
				require.NoError(t, s.Add(pod(fmt.Sprintf("web-%d", i), "web", "1", scratch("local"))))
			}
			require.NoError(t, s.Run(t.Context()))
			require.Equal(t, map[string]int{"a": 2, "b": 2, "": 1}, zones(s))
			for _, pv := range sim.List[*v1.PersistentVolume](s) {
				require.Equal(t, v1.LabelHostname, pv.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Key)
			}
			for _, p := range sim.List[*v1.Pod](s) {
				if p.Spec.NodeName == "" && name == "waits" {
					require.Contains(t, s.Why(p), "did not have enough free storage")
				}
				if p.Spec.NodeName == "node-a" {
					s.Displace(p)
					break
				}
			}
			require.NoError(t, s.Run(t.Context()))
			require.Equal(t, 1, zones(s)[""], "one took the other's room")
			names, err := s.AddNodes(1, "node-a")
			require.NoError(t, err)
			if name == "waits" {
				require.NoError(t, s.Run(t.Context()))
				require.Zero(t, zones(s)[""], "%s has storage of its own", names)
			}
		})
	}
}

// TestAGangDoesNotTakeMoreStorageThanThereIs: its members get their nodes all together, before the first volume is
// made. The driver refuses the one volume too many.
func TestAGangDoesNotTakeMoreStorageThanThereIs(t *testing.T) {
	objects := append(local("25Gi", "node-a"), storageClass("local"), node("node-a", "a", "8"), gang("train", 3))
	for i := range 3 {
		objects = append(objects, pod(fmt.Sprintf("train-%d", i), "train", "1", build.Member("train"), withClaim(fmt.Sprintf("data-%d", i))))
	}
	s := run(t, objects[:len(objects)-3], sim.Options{})
	for i := range 3 {
		require.NoError(t, s.Add(claim(fmt.Sprintf("data-%d", i), "local"), objects[len(objects)-3+i]))
	}
	require.NoError(t, s.Run(t.Context()))
	require.Len(t, sim.List[*v1.PersistentVolume](s), 2)
	capacity, _ := sim.Get[*storagev1.CSIStorageCapacity](s, "driver", "node-a")
	require.Equal(t, "5Gi", capacity.Capacity.String())
}
