package performance

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	nodeutil "k8s.io/kubernetes/pkg/util/node"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cluster/census"
	"zonewise.dev/cluster/live"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/demo/cluster"
	"zonewise.dev/demo/workload"
	library "zonewise.dev/survival"
	"zonewise.dev/test/internal/apiserver"
	"zonewise.dev/test/internal/program"
	"zonewise.dev/test/trace"
)

var (
	lossNodes    = flag.Int("loss-nodes", 300, "how many nodes BenchmarkZoneLoss has, in zones of 50, 30 and 20 percent")
	lossTimes    = flag.Int("loss-times", 8, "how many times as large as those of the trace the nodes of BenchmarkZoneLoss are")
	lossLoad     = flag.Float64("loss-load", 0.6, "the part of the CPU or of the memory that services take in BenchmarkZoneLoss")
	lossFill     = flag.Float64("loss-fill", 0.97, "the part of both that fillers would take, together with the services, if nothing were held")
	lossZones    = flag.String("loss-zones", "b,c", "the zones that BenchmarkZoneLoss loses, one after the other, each of a cluster of its own")
	lossPolicies = flag.Int("loss-policies", 3, "every how many services of BenchmarkZoneLoss one has a ZoneSpreadPolicy")
	lossGrace    = flag.Duration("loss-grace", 10*time.Second, "unavailableZones.downAfter of these policies")
	lossFull     = flag.Duration("loss-full", 30*time.Second, "unavailableZones.fullAfter of these policies")
	lossSeed     = flag.Uint64("loss-seed", 1, "the seed of the first cluster of BenchmarkZoneLoss")
)

const (
	// patience bounds what has to happen before the loss, and lossLimit what comes of it after the grace period.
	patience  = 30 * time.Minute
	lossLimit = 2 * time.Minute
	appLabel  = "app"
)

// BenchmarkZoneLoss loses a zone of a real control plane. The services of a trace run, some of them spread by a
// ZoneSpreadPolicy; the controller holds the room that the loss of each zone needs, fillers of the same priority take
// all other room, and the controller says how many would wait. Then the kubelets of a zone die, and its nodes are
// marked as node-lifecycle-controller marks nodes that no longer report. From that moment on it takes the time until
// each displaced replica is bound again. Nothing but the figures is judged, but for one thing: no more replicas may
// wait than was said. The tolerations of an unreachable node are 2 seconds (package demo/cluster).
func BenchmarkZoneLoss(b *testing.B) {
	root := apiserver.Root(b)
	_, err := program.Scheduler(root)
	require.NoError(b, err)
	worst := map[string]float64{}
	for n := range b.N {
		zones := strings.Split(*lossZones, ",")
		l := loss{B: b, zone: zones[n%len(zones)]}
		l.traced = trace.New(trace.Options{Nodes: *lossNodes, Times: *lossTimes, Load: *lossLoad, Seed: *lossSeed + uint64(n/len(zones))}) //nolint:gosec // not negative
		for name, value := range l.run(filepath.Join(root, "bin")) {
			worst[name] = max(worst[name], value)
		}
	}
	for name, value := range worst {
		b.ReportMetric(value, name)
	}
}

// loss is one cluster, and the loss of one of its zones.
type loss struct {
	*testing.B
	ctx     context.Context // ends with the cluster
	zone    string
	traced  *trace.Cluster
	cluster *cluster.Cluster
	live    *live.Live
	spread  map[string]bool // the services with a policy
}

// run returns what was measured, by its name.
func (l *loss) run(bin string) map[string]float64 {
	ctx, stop := context.WithCancel(l.Context())
	defer stop()
	c, running, err := cluster.Start(ctx, cluster.Options{
		BinDir: bin, Zones: []string{"a", "b", "c"}, Progress: func(string) {},
		// As fast as it can, but not in the minute after the loss: in a real cluster it does not take a core from the
		// API server then.
		Controller: []string{"--cpu-fraction=64", "--settle-time=1m", "-v=2"},
	})
	require.NoError(l, err)
	l.cluster, l.ctx = c, running
	defer func() { require.NoError(l, c.Stop()) }()
	l.live, err = live.Start(l.ctx, c.Config)
	require.NoError(l, err)
	require.NoError(l, l.live.Sync(l.ctx))

	l.makeNodes()
	l.placeServices()
	l.hold()
	l.fill()
	said := l.certificate()
	return l.lose(said)
}

func (l *loss) makeNodes() {
	for i := range l.traced.Nodes {
		l.make(l.traced.Nodes[i].Object())
	}
	l.until("all nodes are ready", func(c *census.Census) bool {
		ready := 0
		for _, n := range c.Nodes {
			if nodeutil.IsNodeReady(n.Node) && len(n.Spec.Taints) == 0 {
				ready++
			}
		}
		return ready == *lossNodes
	})
}

func (l *loss) placeServices() {
	l.spread = map[string]bool{}
	for _, name := range []string{workload.ServiceNamespace, workload.BatchNamespace} {
		l.make(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	for i, s := range l.traced.Services {
		if i%*lossPolicies == 0 {
			l.spread[s.Name()] = true
			l.make(policyFor(s.Name()))
		}
		l.make(deployment(workload.ServiceNamespace, s.Name(), s.Replicas, s.Each))
	}
	l.until("all services run", func(c *census.Census) bool { return bound(c, workload.ServiceNamespace) == l.traced.Replicas() })
	l.Logf("%d pods of %d services run on %d nodes, %d services have a ZoneSpreadPolicy", l.traced.Replicas(), len(l.traced.Services), *lossNodes, len(l.spread))
}

// policyFor gives each zone the share of its nodes.
func policyFor(app string) *v1alpha1.ZoneSpreadPolicy {
	p := &v1alpha1.ZoneSpreadPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: workload.ServiceNamespace, Name: app}}
	p.Spec.PodSelector.MatchLabels = map[string]string{appLabel: app}
	p.Spec.Zones = trace.Shares()
	p.Spec.UnavailableZones.DownAfter, p.Spec.UnavailableZones.FullAfter = &metav1.Duration{Duration: *lossGrace}, &metav1.Duration{Duration: *lossFull}
	return p
}

func deployment(namespace, app string, replicas int, each workload.Resources) *appsv1.Deployment {
	labels := map[string]string{appLabel: app}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: app}}
	d.Spec.Replicas = ptr.To(int32(replicas)) //nolint:gosec // thousands
	d.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
	d.Spec.Template.Labels = labels
	d.Spec.Template.Spec.AutomountServiceAccountToken = ptr.To(false)
	d.Spec.Template.Spec.TerminationGracePeriodSeconds = ptr.To[int64](1)
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "c", Image: "none", Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{
			corev1.ResourceCPU: each.List()[corev1.ResourceCPU], corev1.ResourceMemory: each.List()[corev1.ResourceMemory],
		},
	}}}
	return d
}

// hold asks for the room that each loss needs, and waits until it is held.
func (l *loss) hold() {
	s := &v1alpha1.ZoneSurvival{ObjectMeta: metav1.ObjectMeta{Name: "services"}}
	s.Spec.Workloads = []v1alpha1.SurvivalWorkload{{Namespace: workload.ServiceNamespace, PodSelector: metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: appLabel, Operator: metav1.LabelSelectorOpExists}},
	}}}
	s.Spec.Survive.ZoneNames = strings.Split(*lossZones, ",")
	s.Spec.Hold = true
	l.make(s)
	began := time.Now()
	is := l.answer("the room is held", func(_ *census.Census, s *v1alpha1.ZoneSurvival) bool {
		return meta.IsStatusConditionTrue(s.Status.Conditions, v1alpha1.ConditionHeld)
	})
	l.Logf("held after %s: %s of the CPU and %s of the memory", time.Since(began).Round(time.Second),
		l.share(is.Status.Held, workload.CPU), l.share(is.Status.Held, workload.Memory))
}

// fill creates fillers, waits until each of them is bound or refused, and leaves as many as are bound: a replay would
// try the others again and again.
func (l *loss) fill() {
	rest := func(of int) float64 { return *lossFill*float64(l.traced.Total[of]) - float64(l.traced.Asked[of]) }
	var each workload.Resources
	each[workload.CPU] = int64(*lossTimes) * 2000 // a sixteenth of the smallest node
	asked := int(math.Ceil(rest(workload.CPU) / float64(each[workload.CPU])))
	each[workload.Memory] = int64(rest(workload.Memory) / float64(asked))
	fillers := deployment(workload.BatchNamespace, "filler", asked, each)
	l.make(fillers)
	l.until("all fillers are bound or refused", func(c *census.Census) bool {
		fillers := c.PodsIn(workload.BatchNamespace)
		return len(fillers) == asked && !slices.ContainsFunc(fillers, func(p *census.Pod) bool {
			return p.Waits() && census.Refusal(p.Pod).Status != corev1.ConditionFalse
		})
	})
	taken := corev1.ResourceList{}
	for _, p := range l.census().Pods {
		if !p.Waits() {
			for name, quantity := range census.Requests(p.Pod) {
				quantity.Add(taken[name])
				taken[name] = quantity
			}
		}
	}
	run := bound(l.census(), workload.BatchNamespace)
	l.require(l.cluster.Client.Patch(l.ctx, fillers, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, run))), fillers.Name)
	l.until("fillers that wait are gone", func(c *census.Census) bool { return len(c.PodsIn(workload.BatchNamespace)) == run })
	l.Logf("%d of %d fillers run; pods take %s of the CPU and %s of the memory", run, asked,
		l.share(taken, workload.CPU), l.share(taken, workload.Memory))
}

// certificate waits until the answer is about the cluster as it is now, and returns what it says about the loss of the
// zone.
func (l *loss) certificate() v1alpha1.SurvivalLoss {
	is := l.answer("the certificate is current", func(c *census.Census, s *v1alpha1.ZoneSurvival) bool {
		held := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionHeld)
		return held != nil && held.Reason != v1alpha1.ReasonFilling && s.Status.Snapshot.Hash == library.Fingerprint(c.Snapshot.Objects())
	})
	for _, c := range is.Status.Conditions {
		l.Logf("%s=%s %s: %s", c.Type, c.Status, c.Reason, c.Message)
	}
	l.Logf("held: %s of the CPU and %s of the memory", l.share(is.Status.Held, workload.CPU), l.share(is.Status.Held, workload.Memory))
	at := slices.IndexFunc(is.Status.Losses, func(loss v1alpha1.SurvivalLoss) bool { return loss.Zone == l.zone })
	require.GreaterOrEqual(l, at, 0)
	return is.Status.Losses[at]
}

// lose takes the zone away, and returns what has come of it.
func (l *loss) lose(said v1alpha1.SurvivalLoss) map[string]float64 {
	w := l.watch()
	lostAt := time.Now()
	l.cluster.StopKubelets(l.zone)
	patch := client.RawPatch(types.StrategicMergePatchType, fmt.Appendf(nil, `{"status":{"conditions":[{`+
		`"type":"Ready","status":"Unknown","reason":"NodeStatusUnknown","message":"Kubelet stopped posting node status.",`+
		`"lastTransitionTime":%q}]}}`, lostAt.UTC().Format(time.RFC3339)))
	for _, n := range l.traced.Nodes {
		if n.Zone == l.zone {
			l.require(l.cluster.Client.Status().Patch(l.ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}, patch), n.Name)
		}
	}
	grace := max(*lossGrace, *lossFull)
	w.until(lostAt.Add(grace + lossLimit))
	r := w.results(lostAt, l.spread)
	l.Logf("loss of zone %s: %d replicas displaced, %d wait; the certificate said %d and %d", l.zone, w.displaced, r.waiting, said.Displaced, said.Waiting)
	l.Logf("seconds after the loss: the last replica was created after %.1f; the last one without a policy was bound after %.1f, with a policy after %.1f (%d of them); "+
		"no later than %.1f seconds after its creation", r.created, r.plain, r.spread, r.withPolicy, r.queued)
	for _, p := range l.census().PodsIn(workload.ServiceNamespace) {
		if p.Waits() {
			l.Logf("%s waits: %s", p.Key(), census.Refusal(p.Pod).Message)
		}
	}
	require.LessOrEqual(l, int64(r.waiting), said.Waiting, "more replicas wait than the certificate said")
	return map[string]float64{
		"displaced-pods": float64(w.displaced), "waiting-pods": float64(r.waiting), "said-waiting-pods": float64(said.Waiting),
		"s-to-last-created": r.created, "s-created-to-bound": r.queued, "s-to-last-bound": r.plain, "s-to-last-bound-with-policy": r.spread,
		"s-over-grace": max(r.plain, r.spread) - grace.Seconds(),
	}
}

func (l *loss) make(o client.Object) { l.require(l.cluster.Client.Create(l.ctx, o), o.GetName()) }

// require ends the benchmark on an error, and says which program has ended if that is why.
func (l *loss) require(err error, what string) {
	l.Helper()
	require.NoError(l, errors.Join(err, context.Cause(l.ctx)), what)
}

func (l *loss) census() *census.Census { return census.Take(l.live.Snapshot()) }

func (l *loss) until(what string, met func(c *census.Census) bool) {
	err := wait.PollUntilContextTimeout(l.ctx, 500*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		return met(l.census()), nil
	})
	l.require(err, what)
}

// answer waits until the ZoneSurvival is as it should be.
func (l *loss) answer(what string, met func(c *census.Census, s *v1alpha1.ZoneSurvival) bool) (is *v1alpha1.ZoneSurvival) {
	l.until(what, func(c *census.Census) bool {
		all := snapshot.List[*v1alpha1.ZoneSurvival](c.Snapshot)
		if len(all) == 0 {
			return false
		}
		is = all[0]
		return met(c, is)
	})
	return is
}

// share is a part of what all nodes have, in words.
func (l *loss) share(of corev1.ResourceList, which int) string {
	name := map[int]corev1.ResourceName{workload.CPU: corev1.ResourceCPU, workload.Memory: corev1.ResourceMemory}[which]
	part, whole := of[name], l.traced.Total.List()[name]
	return fmt.Sprintf("%.1f%%", 100*part.AsApproximateFloat64()/whole.AsApproximateFloat64())
}

// bound counts the pods of a namespace that have a node.
func bound(c *census.Census, namespace string) int {
	n := 0
	for _, p := range c.PodsIn(namespace) {
		if !p.Waits() {
			n++
		}
	}
	return n
}

// watcher sees when replicas of the services are created and bound after a loss.
type watcher struct {
	loss *loss
	// displaced is how many replicas run in the zone that is to be lost.
	displaced int

	mu sync.Mutex // guards seen
	// seen are the replicas that were created since.
	seen map[types.UID]*replica
}

// replica is one that was created after the loss.
type replica struct {
	app            string
	created, bound time.Time // bound is zero while it waits
}

// watch begins to watch.
func (l *loss) watch() *watcher {
	w := &watcher{loss: l, seen: map[types.UID]*replica{}}
	for _, p := range l.census().PodsIn(workload.ServiceNamespace) {
		if p.On != nil && p.On.Zone == l.zone {
			w.displaced++
		}
	}
	kube, err := kubernetes.NewForConfig(l.cluster.Config)
	require.NoError(l, err)
	pods := informers.NewSharedInformerFactoryWithOptions(kube, 0, informers.WithNamespace(workload.ServiceNamespace)).Core().V1().Pods().Informer()
	handle, err := pods.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, initial bool) {
			if !initial {
				w.add(obj.(*corev1.Pod)) //nolint:forcetypeassert // the informer's
			}
		},
		UpdateFunc: func(_, obj any) { w.update(obj.(*corev1.Pod)) }, //nolint:forcetypeassert // the informer's
	})
	require.NoError(l, err)
	go pods.Run(l.ctx.Done())
	require.True(l, cache.WaitForCacheSync(l.ctx.Done(), handle.HasSynced))
	return w
}

func (w *watcher) add(pod *corev1.Pod) {
	w.mu.Lock()
	w.seen[pod.UID] = &replica{app: pod.Labels[appLabel], created: time.Now()}
	w.mu.Unlock()
	w.update(pod)
}

func (w *watcher) update(pod *corev1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r := w.seen[pod.UID]; r != nil && r.bound.IsZero() && pod.Spec.NodeName != "" {
		r.bound = time.Now()
	}
}

// until waits until all displaced replicas have been created again and are bound, or until the deadline.
func (w *watcher) until(deadline time.Time) {
	ctx, stop := context.WithDeadline(w.loss.ctx, deadline)
	defer stop()
	err := wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(context.Context) (bool, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		bound := 0
		for _, r := range w.seen {
			if !r.bound.IsZero() {
				bound++
			}
		}
		return len(w.seen) >= w.displaced && bound == len(w.seen), nil
	})
	if err != nil {
		w.loss.require(nil, "the displaced replicas are bound")
	}
}

// results are seconds after the loss, and counts.
type results struct {
	// created is when the last replica was created, plain and spread when the last one without and with a policy was
	// bound, and queued how long after its creation a replica was bound, at most.
	created, plain, spread, queued float64
	withPolicy, waiting            int
}

func (w *watcher) results(lostAt time.Time, spread map[string]bool) results {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := results{waiting: max(0, w.displaced-len(w.seen))}
	for _, is := range w.seen {
		r.created, r.queued = max(r.created, is.created.Sub(lostAt).Seconds()), max(r.queued, is.bound.Sub(is.created).Seconds())
		if spread[is.app] {
			r.withPolicy++
		}
		switch after := is.bound.Sub(lostAt).Seconds(); {
		case is.bound.IsZero():
			r.waiting++
		case spread[is.app]:
			r.spread = max(r.spread, after)
		default:
			r.plain = max(r.plain, after)
		}
	}
	return r
}
