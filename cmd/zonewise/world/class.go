package world

import (
	"encoding/json"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/component-helpers/storage/volume"
	"k8s.io/klog/v2"

	"zonewise.dev/plugins/reservecache/holds"
	"zonewise.dev/plugins/reservecache/ledger"
)

// Class is pods of which one goes wherever another one may: same namespace and needs, and the same labels as far as a
// selector looks at them. It caches what nodes are to them by themselves, and the counts of what is where, which Place keeps
// current.
type Class struct {
	pod      *corev1.Pod
	requests ledger.Resources
	names    []corev1.ResourceName // of requests that are above 0
	asker    holds.Asker
	owner    *Hold

	judged    // static of each node, and the nodes that are allowed by themselves
	ports     []port
	taken     []bool // by node: a host port is in use
	zones     []*constraint
	near      []*term
	forbidden []bool // by node: the anti-affinity of a pod that is there keeps them off
	tables    []*ruled
	full      bool // no node is left
}

// static is what a node is to a class, whatever pods are on it.
type static uint8

const (
	fits static = iota
	lost
	unschedulable
	tainted
	mismatched
	elsewhere // a bound volume is
	noKey
)

// classOf returns the class of a pod. It is current until the next pod of another class is placed.
func (w *World) classOf(p *Pod) *Class {
	key := w.classKey(p)
	c, ok := w.classes[key]
	if !ok {
		// One at a time: the counts of another class would go stale unseen.
		clear(w.classes)
		c = w.newClass(p.Object)
		w.classes[key] = c
	}
	return c
}

// classKey is equal for pods that may change places.
func (w *World) classKey(p *Pod) string {
	pod := p.Object
	var volumes []*corev1.VolumeNodeAffinity
	for _, v := range w.volumesOf(pod) {
		volumes = append(volumes, v.Spec.NodeAffinity)
	}
	data, err := json.Marshal(struct {
		Namespace string
		Labels    map[string]string
		Requests  ledger.Resources
		Selector  map[string]string
		Affinity  *corev1.Affinity
		Spread    []corev1.TopologySpreadConstraint
		Tolerate  []corev1.Toleration
		Ports     []port
		Volumes   []*corev1.VolumeNodeAffinity
		Priority  *int32
	}{
		pod.Namespace, w.mentioned(pod), p.Requests, pod.Spec.NodeSelector, pod.Spec.Affinity,
		pod.Spec.TopologySpreadConstraints, pod.Spec.Tolerations, portsOf(pod), volumes, pod.Spec.Priority,
	})
	if err != nil {
		return string(pod.UID) // alone it is in no wrong company
	}
	return string(data)
}

func (w *World) newClass(pod *corev1.Pod) *Class {
	c := &Class{pod: pod, requests: RequestsOf(pod), ports: portsOf(pod)}
	c.names = []corev1.ResourceName{corev1.ResourcePods}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
		if c.requests.Amount(name) > 0 {
			c.names = append(c.names, name)
		}
	}
	c.names = append(c.names, slices.Sorted(maps.Keys(c.requests.Scalar))...)
	c.asker, c.owner = w.askerOf(pod)
	w.judgeNodes(c)
	w.countPorts(c)
	w.countConstraints(c)
	w.countTerms(c)
	for _, p := range w.PoliciesOf(pod) {
		c.tables = append(c.tables, w.judge(p, c))
	}
	return c
}

// judged is what nodes are to some pods by themselves. It does not change.
type judged struct {
	static     []static
	candidates []int
}

// judgeNodes computes what each node is by itself, once for all pods that ask the same of a node.
func (w *World) judgeNodes(c *Class) {
	volumes := w.volumesOf(c.pod)
	if len(volumes) > 0 {
		c.judged = w.judgeFor(c.pod, volumes) // there may be as many as there are pods
		return
	}
	var hard []string
	for i := range c.pod.Spec.TopologySpreadConstraints {
		if s := &c.pod.Spec.TopologySpreadConstraints[i]; s.WhenUnsatisfiable == corev1.DoNotSchedule {
			hard = append(hard, s.TopologyKey)
		}
	}
	key, err := json.Marshal(struct {
		Selector map[string]string
		Affinity *corev1.Affinity
		Tolerate []corev1.Toleration
		Hard     []string
	}{c.pod.Spec.NodeSelector, c.pod.Spec.Affinity, c.pod.Spec.Tolerations, hard})
	if err != nil {
		c.judged = w.judgeFor(c.pod, nil)
		return
	}
	known, ok := w.judged[string(key)]
	if !ok {
		known = w.judgeFor(c.pod, nil)
		w.judged[string(key)] = known
	}
	c.judged = known
}

func (w *World) judgeFor(pod *corev1.Pod, volumes []*corev1.PersistentVolume) judged {
	affinity := nodeaffinity.GetRequiredNodeAffinity(pod)
	cordon := &corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}
	throughCordon := tolerated(cordon, pod.Spec.Tolerations)
	out := judged{static: make([]static, len(w.Nodes))}
	for i, n := range w.Nodes {
		out.static[i] = func() static {
			if n.Lost {
				return lost
			}
			// A selector that does not parse matches no node, as in the plugin NodeAffinity.
			if match, err := affinity.Match(n.Object); err != nil || !match {
				return mismatched
			}
			if n.Object.Spec.Unschedulable && !throughCordon {
				return unschedulable
			}
			if Untolerated(n.Object, pod.Spec.Tolerations) != nil {
				return tainted
			}
			for _, v := range volumes {
				if volume.CheckNodeAffinity(v, n.Object.Labels) != nil {
					return elsewhere
				}
			}
			for j := range pod.Spec.TopologySpreadConstraints {
				s := &pod.Spec.TopologySpreadConstraints[j]
				if _, ok := n.Object.Labels[s.TopologyKey]; !ok && s.WhenUnsatisfiable == corev1.DoNotSchedule {
					return noKey
				}
			}
			return fits
		}()
		if out.static[i] == fits {
			out.candidates = append(out.candidates, i)
		}
	}
	return out
}

// admitted tells whether node selector and affinity admit the class, and tolerated whether it tolerates the taints.
func (c *Class) admitted(i int) bool { return c.static[i] != mismatched && c.static[i] != lost }

func (c *Class) tolerated(i int) bool { return c.static[i] != tainted && c.static[i] != unschedulable }

// Untolerated returns the first taint that keeps a pod off a node, nil when there is none.
func Untolerated(node *corev1.Node, tolerations []corev1.Toleration) *corev1.Taint {
	for i := range node.Spec.Taints {
		taint := &node.Spec.Taints[i]
		if taint.Effect != corev1.TaintEffectPreferNoSchedule && !tolerated(taint, tolerations) {
			return taint
		}
	}
	return nil
}

func tolerated(taint *corev1.Taint, tolerations []corev1.Toleration) bool {
	for i := range tolerations {
		// The helper logs tolerations that it cannot parse; there is nobody here to read that.
		if tolerations[i].ToleratesTaint(klog.Logger{}, taint, true) {
			return true
		}
	}
	return false
}

// volumesOf returns the volumes that a pod's claims are bound to and that are on certain nodes only.
func (w *World) volumesOf(pod *corev1.Pod) []*corev1.PersistentVolume {
	var out []*corev1.PersistentVolume
	for i := range pod.Spec.Volumes {
		name := claimOf(pod, &pod.Spec.Volumes[i])
		claim := w.claims[[2]string{pod.Namespace, name}]
		if name == "" || claim == nil || claim.Spec.VolumeName == "" {
			continue
		}
		if v := w.volumes[claim.Spec.VolumeName]; v != nil && v.Spec.NodeAffinity != nil {
			out = append(out, v)
		}
	}
	return out
}

// claimOf returns the name of the claim behind a volume, empty when there is none.
func claimOf(pod *corev1.Pod, v *corev1.Volume) string {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName
	case v.Ephemeral != nil:
		return pod.Name + "-" + v.Name
	}
	return ""
}

// port is a port of the host that a pod uses.
type port struct {
	IP       string
	Protocol corev1.Protocol
	Port     int32
}

func portsOf(pod *corev1.Pod) []port {
	var out []port
	add := func(list []corev1.Container) {
		for i := range list {
			for _, p := range list[i].Ports {
				if p.HostPort > 0 {
					out = append(out, port{p.HostIP, p.Protocol, p.HostPort})
				}
			}
		}
	}
	add(pod.Spec.Containers)
	for i := range pod.Spec.InitContainers {
		if r := pod.Spec.InitContainers[i].RestartPolicy; r != nil && *r == corev1.ContainerRestartPolicyAlways {
			add(pod.Spec.InitContainers[i : i+1])
		}
	}
	return out
}

func (p port) conflicts(o port) bool {
	anywhere := func(ip string) bool { return ip == "" || ip == "0.0.0.0" || ip == "::" }
	protocol := func(p corev1.Protocol) corev1.Protocol {
		if p == "" {
			return corev1.ProtocolTCP
		}
		return p
	}
	return p.Port == o.Port && protocol(p.Protocol) == protocol(o.Protocol) && (p.IP == o.IP || anywhere(p.IP) || anywhere(o.IP))
}

// countPorts marks the nodes where a host port of the class is in use.
func (w *World) countPorts(c *Class) {
	if len(c.ports) == 0 {
		return
	}
	c.taken = make([]bool, len(w.Nodes))
	for _, p := range w.Pods {
		if p.Node == nil || c.taken[p.Node.index] {
			continue
		}
		for _, theirs := range portsOf(p.Object) {
			for _, ours := range c.ports {
				if ours.conflicts(theirs) {
					c.taken[p.Node.index] = true
				}
			}
		}
	}
}
