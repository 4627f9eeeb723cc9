package parity

import (
	"context"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"pgregory.net/rapid"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/test/schedulertest"
)

// cluster is the scheduler's own cache, driven as its event handlers and scheduling cycles drive it.
type cluster struct {
	logger   klog.Logger
	cache    cache.Cache
	snapshot *cache.Snapshot
	nodes    []*v1.Node
	bound    []*v1.Pod // the API server knows their node
	assumed  []*v1.Pod // only the scheduler does
	serial   int
}

func newCluster(ctx context.Context) *cluster {
	return &cluster{
		logger:   klog.Logger{}, // the cache reports every pod that was bound elsewhere
		cache:    schedulertest.NewCache(ctx),
		snapshot: cache.NewEmptySnapshot(),
	}
}

func (c *cluster) must(t *rapid.T, err error) {
	if err != nil {
		t.Fatalf("driving the scheduler's cache: %v", err)
	}
}

func (c *cluster) name(kind string) string {
	c.serial++
	return fmt.Sprintf("%s-%d", kind, c.serial)
}

// recount returns what the snapshot holds, for the oracle.
func (c *cluster) recount(nodes []fwk.NodeInfo) Recount {
	var r Recount
	for _, n := range nodes {
		r.Nodes = append(r.Nodes, n.Node())
		for _, p := range n.GetPods() {
			r.Pods = append(r.Pods, p.GetPod())
		}
	}
	return r
}

func pick[T any](t *rapid.T, label string, values ...T) T {
	return rapid.SampledFrom(values).Draw(t, label)
}

func (c *cluster) drawNode(t *rapid.T, name string) *v1.Node {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{}}}
	if z := pick(t, "zone", "z1", "z2", "z3", "z4", "z1", "z2", "", "missing"); z != "missing" {
		n.Labels[zone] = z
	}
	switch pick(t, "host", "own", "own", "own", "own", "own", "missing", "shared") {
	case "own":
		n.Labels[host] = name
	case "shared":
		n.Labels[host] = "shared"
	}
	if d := pick(t, "disk", "missing", "ssd", "hdd"); d != "missing" {
		n.Labels["disk"] = d
	}
	for range pick(t, "taints", 0, 0, 0, 1, 2) {
		n.Spec.Taints = append(n.Spec.Taints, v1.Taint{
			Key:    pick(t, "taint", "gpu", "out"),
			Effect: pick(t, "effect", v1.TaintEffectNoSchedule, v1.TaintEffectNoExecute, v1.TaintEffectPreferNoSchedule),
		})
	}
	return n
}

func drawLabels(t *rapid.T) map[string]string {
	labels := map[string]string{}
	for _, e := range []struct {
		key    string
		values []string
	}{
		{"app", []string{"web", "web", "web", "db", "missing"}},
		{"tier", []string{"front", "back", "missing", ""}},
		{"hash", []string{"1", "2", "missing"}},
		{v1alpha1.PodGroupLabel, []string{"one", "two", "three", "missing", "missing"}},
	} {
		if v := pick(t, e.key, e.values...); v != "missing" {
			labels[e.key] = v
		}
	}
	return labels
}

func (c *cluster) drawPod(t *rapid.T) *v1.Pod {
	name := c.name("pod")
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID(name), Namespace: pick(t, "namespace", "default", "default", "default", "other"), Labels: drawLabels(t),
	}}
}

// mutate lets one thing happen between two cycles.
func (c *cluster) mutate(t *rapid.T) {
	switch what := pick(t, "mutation",
		"create", "create", "create", "confirm", "confirm", "forget", "bind elsewhere", "relabel", "terminate", "delete", "delete",
		"add node", "relabel node", "remove node", "return node"); what {
	case "create":
		if len(c.nodes) > 0 {
			p := c.drawPod(t)
			p.Spec.NodeName = pick(t, "node", c.nodes...).Name
			c.must(t, c.cache.AddPod(c.logger, p))
			c.bound = append(c.bound, p)
		}
	case "confirm", "bind elsewhere":
		if i, ok := c.anyOf(t, c.assumed); ok {
			p := c.assumed[i].DeepCopy()
			// The API server copies the node's topology onto the pod when it binds it.
			p.Labels[zone] = "bound"
			if what == "bind elsewhere" {
				// Another scheduler was faster. Upstream's handler sees the pod's own node.
				p.Spec.NodeName = pick(t, "node", c.nodes...).Name
			}
			c.must(t, c.cache.AddPod(c.logger, p))
			c.bound = append(c.bound, p)
			c.assumed = slices.Delete(c.assumed, i, i+1)
		}
	case "forget":
		if i, ok := c.anyOf(t, c.assumed); ok {
			c.must(t, c.cache.ForgetPod(c.logger, c.assumed[i]))
			c.assumed = slices.Delete(c.assumed, i, i+1)
		}
	case "relabel", "terminate":
		if i, ok := c.anyOf(t, c.bound); ok {
			p := c.bound[i].DeepCopy()
			if what == "relabel" {
				p.Labels = drawLabels(t)
			} else {
				p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
			}
			c.must(t, c.cache.UpdatePod(c.logger, c.bound[i], p))
			c.bound[i] = p
		}
	case "delete":
		if i, ok := c.anyOf(t, c.bound); ok {
			c.must(t, c.cache.RemovePod(c.logger, c.bound[i]))
			c.bound = slices.Delete(c.bound, i, i+1)
		}
	default:
		c.mutateNode(t, what)
	}
}

func (c *cluster) anyOf(t *rapid.T, pods []*v1.Pod) (int, bool) {
	if len(pods) == 0 || len(c.nodes) == 0 {
		return 0, false
	}
	return rapid.IntRange(0, len(pods)-1).Draw(t, "pod"), true
}

func (c *cluster) mutateNode(t *rapid.T, what string) {
	if what == "add node" || len(c.nodes) == 0 {
		n := c.drawNode(t, c.name("node"))
		c.cache.AddNode(c.logger, n)
		c.nodes = append(c.nodes, n)
		return
	}
	i := rapid.IntRange(0, len(c.nodes)-1).Draw(t, "node")
	switch what {
	case "relabel node":
		n := c.drawNode(t, c.nodes[i].Name)
		c.cache.UpdateNode(c.logger, c.nodes[i], n)
		c.nodes[i] = n
	case "remove node":
		// Its pods stay in the cache until they are deleted; the snapshot no longer has the node.
		c.must(t, c.cache.RemoveNode(c.logger, c.nodes[i]))
		c.nodes = slices.Delete(c.nodes, i, i+1)
	case "return node":
		n := c.drawNode(t, c.nodes[i].Name)
		n.UID += "-again"
		c.must(t, c.cache.RemoveNode(c.logger, c.nodes[i]))
		c.cache.AddNode(c.logger, n)
		c.nodes[i] = n
	}
}

// drawIncoming draws a pod to schedule, with constraints of every kind.
func (c *cluster) drawIncoming(t *rapid.T) *v1.Pod {
	p := c.drawPod(t)
	for range pick(t, "constraints", 0, 1, 1, 1, 2, 2, 3) {
		p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, drawConstraint(t))
	}
	switch pick(t, "affinity", "", "", "", "selector", "terms") {
	case "selector":
		p.Spec.NodeSelector = map[string]string{"disk": pick(t, "disk", "ssd", "hdd")}
	case "terms":
		p = withNodeAffinity(p, zone, v1.NodeSelectorOpIn, "z1", pick(t, "other zone", "z2", "z3"))
	}
	for range pick(t, "tolerations", 0, 0, 1, 2) {
		p = withToleration(p, pick(t, "toleration", "gpu", "out"))
	}
	return p
}

func drawConstraint(t *rapid.T) v1.TopologySpreadConstraint {
	c := spread(pick[int32](t, "maxSkew", 1, 1, 2, 5), pick(t, "key", zone, zone, host, host, "disk"), nil)
	in := func(op metav1.LabelSelectorOperator, values ...string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: op, Values: values}}}
	}
	c.LabelSelector = pick(t, "selector",
		selects("app=web"), selects("app=web"), selects("app=db"), selects("app"), selects("app=web", "tier"), selects("tier=back"),
		in(metav1.LabelSelectorOpIn, "web", "db"), in(metav1.LabelSelectorOpNotIn, "web"), in(metav1.LabelSelectorOpDoesNotExist), nil)
	if pick(t, "soft", false, true) {
		soft(&c)
	} else if n := pick[int32](t, "minDomains", 0, 0, 2, 4); n > 0 {
		c.MinDomains = &n
	}
	if pick(t, "revision", false, false, true) {
		c.MatchLabelKeys = []string{"hash"}
	}
	if p := pick(t, "affinityPolicy", "", honor, ignore); p != "" {
		c.NodeAffinityPolicy = &p
	}
	if p := pick(t, "taintsPolicy", "", honor, ignore); p != "" {
		c.NodeTaintsPolicy = &p
	}
	return c
}
