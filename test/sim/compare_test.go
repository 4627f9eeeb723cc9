package sim

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cluster/snapshot"
	simulation "zonewise.dev/sim"
)

var (
	clusters = flag.Int("clusters", 24, "how many random clusters are compared; make soak compares 200, -short at most 6")
	beside   = flag.Int("beside", 6, "how many of them are there at the same time")
	first    = flag.Uint64("first", 1, "the first cluster")
	without  = flag.String("without", "", "what the clusters do without, such as \"gang,device\", to find out what a difference is about")
)

// TestASimDoesWhatASchedulerDoes gives a scheduler on an API server, and a copy of the same cluster, the same random
// pods, and then takes a zone away. Both place the same pods on the same nodes, the copy going the way of the cluster
// where nodes score the same, and say the same of those that wait.
func TestASimDoesWhatASchedulerDoes(t *testing.T) {
	require.NoError(t, lanes[0].Client.Create(t.Context(), &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: gpus}, Spec: resourcev1.DeviceClassSpec{
		Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: fmt.Sprintf("device.driver == %q", gpus)}}},
	}}))
	require.NoError(t, lanes[0].Client.Create(t.Context(), &storagev1.StorageClass{
		ObjectMeta:  metav1.ObjectMeta{Name: defaultClass, Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}},
		Provisioner: "default.example.com", VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
	}))
	var next atomic.Uint64
	t.Cleanup(func() {
		t.Logf("%d workloads were promised to survive a loss, and did; %d were not", kept.Load(), refused.Load())
		require.True(t, *clusters < 20 || kept.Load() > 20 && refused.Load() > 0, "the certificates say something")
	})
	for _, l := range lanes {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			for {
				i := next.Add(1) - 1
				if i >= uint64(*clusters) { //nolint:gosec // not negative
					return
				}
				c := generate(*first + i)
				t.Run(c.name, func(t *testing.T) {
					x := &comparison{T: t, lane: l, cluster: c}
					defer x.clean()
					x.startProvisioner()
					x.fill()
					x.compareRun()
					x.compareReasons()
					x.compareLoss()
				})
			}
		})
	}
}

// copies is held by the lane whose copy runs. Copies are surest of what is to come when little else runs in the
// process.
var copies sync.Mutex

// comparison is one cluster that is compared.
type comparison struct {
	*testing.T
	*lane
	cluster *cluster
	// scored is the pods in the order in which the copy chose among nodes.
	scored []string
	// started is how many pods have been started.
	started int
}

// fill makes the cluster, and has its pods gather in the scheduler's queue.
func (x *comparison) fill() {
	uids := map[string]client.Object{}
	for _, obj := range x.cluster.before {
		x.create(obj, uids)
		uids[obj.GetName()] = obj
	}
	x.until("policies and reservations have been seen", x.served)
	x.rest()
	x.hold()
	for _, pod := range x.cluster.waiting {
		x.create(pod, uids)
	}
	x.until("the pods are in the queue", func() bool {
		pending, _ := x.scheduler.SchedulingQueue.PendingPods()
		return len(pending) >= len(x.cluster.waiting)
	})
}

// served tells whether every policy and every reservation has a status.
func (x *comparison) served() bool {
	var policies v1alpha1.ZoneSpreadPolicyList
	var reservations v1alpha1.ZoneReservationList
	require.NoError(x, x.List(x.Context(), &policies))
	require.NoError(x, x.List(x.Context(), &reservations))
	return !slices.ContainsFunc(policies.Items, func(p v1alpha1.ZoneSpreadPolicy) bool { return len(p.Status.Conditions) == 0 }) &&
		!slices.ContainsFunc(reservations.Items, func(r v1alpha1.ZoneReservation) bool { return len(r.Status.Conditions) == 0 })
}

func (x *comparison) create(obj client.Object, owners map[string]client.Object) {
	x.Helper()
	ctx := x.Context()
	wanted := obj.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy has the type of the original
	refs := obj.GetOwnerReferences()
	for i := range refs {
		if owner := owners[refs[i].Name]; owner != nil {
			refs[i].UID = owner.GetUID()
		}
	}
	obj.SetOwnerReferences(refs)
	require.NoError(x, x.Create(ctx, obj), obj.GetName())
	switch o := obj.(type) {
	case *policyv1.PodDisruptionBudget:
		o.Status = wanted.(*policyv1.PodDisruptionBudget).Status //nolint:forcetypeassert // a copy
		require.NoError(x, x.Status().Update(ctx, o))
	case *v1.Pod:
		x.createClaims(o)
		if o.Spec.NodeName != "" {
			o.Status = wanted.(*v1.Pod).Status //nolint:forcetypeassert // a copy
			require.NoError(x, x.Status().Update(ctx, o))
		}
	case *v1.PersistentVolume:
		o.Status = wanted.(*v1.PersistentVolume).Status //nolint:forcetypeassert // a copy
		require.NoError(x, x.Status().Update(ctx, o))
	case *v1.PersistentVolumeClaim:
		o.Status = wanted.(*v1.PersistentVolumeClaim).Status //nolint:forcetypeassert // a copy
		require.NoError(x, x.Status().Update(ctx, o))
		pv := owners[o.Spec.VolumeName].(*v1.PersistentVolume) //nolint:forcetypeassert // a claim's volume comes before it
		pv.Spec.ClaimRef.UID = o.UID
		require.NoError(x, x.Update(ctx, pv))
	}
}

func (x *comparison) until(what string, met func() bool) {
	x.Helper()
	err := wait.PollUntilContextTimeout(x.Context(), 10*time.Millisecond, waitTimeout, true, func(context.Context) (bool, error) { return met(), nil })
	require.NoError(x, err, what)
}

// hold keeps the scheduler from taking pods, so that they gather in its queue. A pod that fits nowhere is what it takes
// last.
func (x *comparison) hold() {
	x.gate.Lock()
	x.plugged.Store(false)
	plug := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "plug-"}, Spec: v1.PodSpec{
		NodeSelector: map[string]string{"nowhere": "true"}, Containers: []v1.Container{{Name: "c", Image: "none"}},
	}}
	require.NoError(x, x.Create(x.Context(), plug))
	x.until("the scheduler holds the plug in its hand", x.plugged.Load)
	require.NoError(x, x.Delete(x.Context(), plug, client.GracePeriodSeconds(0)))
}

// release lets the scheduler go on, and waits until it has come to rest. Pods that were told to end meanwhile end all
// together then, before the scheduler goes on again, until nothing more happens.
func (x *comparison) release() {
	x.mu.Lock()
	x.order = nil
	clear(x.nominated)
	x.mu.Unlock()
	for {
		x.gate.Unlock()
		x.rest()
		if !x.anyEnds() {
			return
		}
		// By now no pod backs off from its last attempt.
		x.hold()
		x.endPods()
	}
}

// settleTime is for how long plugins may gather what has happened before they act on it.
const settleTime = 300 * time.Millisecond

// quiet is how long nothing has to happen.
const quiet = 500 * time.Millisecond

func (x *comparison) rest() {
	last, since := int64(-1), time.Now()
	quiet := quiet
	if x.cluster.features["policy"] > 0 {
		quiet += downAfter // a zone may be found to be down
	}
	defer func() {
		if x.Failed() {
			x.mu.Lock()
			defer x.mu.Unlock()
			x.Logf("what was tried last: %v", x.order[max(0, len(x.order)-20):])
			for name, pod := range x.pods() {
				if pod.Spec.NodeName == "" {
					x.Logf("%s waits: %s", name, said(pod))
				}
			}
		}
	}()
	x.until("the scheduler comes to rest", func() bool {
		q := x.scheduler.SchedulingQueue
		for _, pod := range x.pods() {
			// Members of gangs may wait for one another with a node in mind. Of another pod the informer lags behind
			// the binding.
			assumed, _ := x.scheduler.Cache.IsAssumedPod(pod)
			if assumed && pod.Labels[schedulingv1alpha1.PodGroupLabel] == "" {
				last = -1
				return false
			}
		}
		if len(q.PodsInActiveQ())+len(q.PodsInBackoffQ())+len(q.InFlightPods()) > 0 || !x.pack.Idle() || x.taken.Load() != last {
			last, since = x.taken.Load(), time.Now()
			return false
		}
		return time.Since(since) > quiet
	})
}

// anyEnds tells whether pods have been told to end. If so, it waits until no pod backs off any more.
func (x *comparison) anyEnds() bool {
	for _, pod := range x.pods() {
		if pod.DeletionTimestamp != nil {
			time.Sleep(backoff - quiet + 100*time.Millisecond)
			return true
		}
	}
	return false
}

// endPods does the kubelets' and the claims' controllers' part: pods that were told to end have ended, and give back
// their devices; those that are bound run.
func (x *comparison) endPods() {
	x.runPods()
	for _, pod := range x.pods() {
		if pod.DeletionTimestamp != nil {
			x.end(pod)
		}
	}
}

// day is how long ago the pods of a cluster have begun to start.
const day = 24 * time.Hour

// runPods starts pods in the order in which they were bound, as a copy does: after all that run already, and no two at
// the same time. Of pods of the same priority upstream takes the youngest for a victim, and of equally old ones
// whichever comes first.
func (x *comparison) runPods() {
	pods := x.pods()
	x.mu.Lock()
	names := slices.SortedFunc(maps.Keys(pods), func(a, b string) int { return cmp.Compare(x.tried[a], x.tried[b]) })
	x.mu.Unlock()
	for _, name := range names {
		pod := pods[name]
		if pod.Spec.NodeName == "" || pod.Status.StartTime != nil || pod.DeletionTimestamp != nil {
			continue
		}
		pod = pod.DeepCopy()
		x.started++
		pod.Status.Phase, pod.Status.StartTime = v1.PodRunning, &metav1.Time{Time: time.Now().Add(-day + time.Duration(x.started)*time.Minute)}
		for _, other := range pods {
			require.False(x, pod.Status.StartTime.Before(other.Status.StartTime), "%s would be older than %s", pod.Name, other.Name)
		}
		require.NoError(x, client.IgnoreNotFound(x.Status().Update(x.Context(), pod)))
	}
}

// end takes a pod away, and waits until the scheduler knows.
func (x *comparison) end(pod *v1.Pod) {
	require.NoError(x, client.IgnoreNotFound(x.Delete(x.Context(), pod.DeepCopy(), client.GracePeriodSeconds(0))))
	for _, ref := range pod.Spec.ResourceClaims {
		claim := &resourcev1.ResourceClaim{}
		require.NoError(x, x.Get(x.Context(), client.ObjectKey{Namespace: pod.Namespace, Name: *ref.ResourceClaimName}, claim))
		claim.Status.ReservedFor, claim.Status.Allocation = nil, nil
		require.NoError(x, x.Status().Update(x.Context(), claim))
	}
	x.until(pod.Name+" is gone", func() bool {
		_, err := x.scheduler.Cache.GetPod(pod)
		return err != nil
	})
}

// state is where the pods are.
func (x *comparison) state() map[string]string {
	out := map[string]string{}
	for name, pod := range x.pods() {
		out[name] = pod.Spec.NodeName
	}
	return out
}

// pods returns the pods as the scheduler knows them.
func (x *comparison) pods() map[string]*v1.Pod {
	x.Helper()
	list, err := x.lister.Pods(x.cluster.name).List(labels.Everything())
	require.NoError(x, err)
	out := map[string]*v1.Pod{}
	for _, pod := range list {
		out[pod.Name] = pod
	}
	return out
}

// copy takes the cluster as it is into a Sim.
func (x *comparison) copy(prefer func(*v1.Pod, bool) string) *simulation.Sim {
	x.Helper()
	s, err := snapshot.Read(x.Context(), x.Client, nil)
	require.NoError(x, err)
	return x.open(s, prefer)
}

func (x *comparison) open(s *snapshot.Snapshot, prefer func(*v1.Pod, bool) string) *simulation.Sim {
	x.Helper()
	config, err := simulation.ParseConfig(x.configYML)
	require.NoError(x, err)
	copies.Lock()
	defer copies.Unlock()
	c, err := simulation.New(x.Context(), s.Objects(), simulation.Options{Config: config, Now: s.TakenAt, Prefer: prefer, Bare: true, Patience: 30 * time.Second})
	require.NoError(x, err)
	x.Cleanup(c.Close)
	return c
}

// asItDid has a copy go the way of the cluster where it may.
func (x *comparison) asItDid() func(*v1.Pod, bool) string {
	x.scored = nil
	state := x.state()
	x.mu.Lock()
	nominated := maps.Clone(x.nominated)
	x.mu.Unlock()
	return func(pod *v1.Pod, evicts bool) string {
		if !evicts {
			x.scored = append(x.scored, pod.Name)
			return state[pod.Name]
		}
		nodes := nominated[pod.Name]
		if len(nodes) == 0 {
			return ""
		}
		x.scored = append(x.scored, "("+pod.Name+")")
		if len(nodes) > 1 {
			nominated[pod.Name] = nodes[1:]
		}
		return nodes[0]
	}
}

// compareRun has both place the pods.
func (x *comparison) compareRun() {
	s, err := snapshot.Read(x.Context(), x.Client, nil)
	require.NoError(x, err)
	x.release()
	x.compare("the pods", x.open(s, x.asItDid()), false)
}

// compare runs a copy of the cluster as it was, and compares it with the cluster as it is: of each workload, as many
// pods have to be on nodes of each zone. Pods of a workload are alike, and which of them goes where depends on when a
// gang's members are tried.
func (x *comparison) compare(what string, c *simulation.Sim, after bool) {
	x.Helper()
	copies.Lock()
	// The scheduler is held up while pods come and nodes go: by its first cycle the plugins have seen it all.
	err := c.PassTime(x.Context(), settleTime)
	if err == nil {
		err = c.Run(x.Context())
	}
	copies.Unlock()
	require.NoError(x, err)
	zones := map[string]string{}
	for _, node := range x.cluster.nodes {
		zones[node.Name] = node.Labels[v1.LabelTopologyZone]
	}
	place := func(pod *v1.Pod) string {
		if after && x.cluster.features["reservation"] > 0 {
			// On which of equal nodes lost slots are held again is not known to a copy, nor whom they keep off: zones
			// are compared.
			return "pods " + zones[pod.Spec.NodeName]
		}
		return metav1.GetControllerOf(pod).Name + " " + zones[pod.Spec.NodeName]
	}
	differ, why := map[string]int{}, map[string]string{}
	for _, pod := range simulation.List[*v1.Pod](c) {
		switch {
		case pod.Namespace != x.cluster.name:
		case pod.Spec.NodeName != "":
			differ[place(pod)]++
		default:
			why[metav1.GetControllerOf(pod).Name] += " copy: " + c.Why(pod)
		}
	}
	for _, pod := range x.pods() {
		if pod.Spec.NodeName != "" {
			differ[place(pod)]--
		} else {
			why[metav1.GetControllerOf(pod).Name] += " cluster: " + said(pod)
		}
	}
	var lines []string
	for _, at := range slices.Sorted(maps.Keys(differ)) {
		if n := differ[at]; n != 0 {
			app, _, _ := strings.Cut(at, " ")
			lines = append(lines, fmt.Sprintf("%s: %+d in the copy;%s", at, n, why[app]))
		}
	}
	if len(lines) > 0 {
		x.mu.Lock()
		x.Logf("the cluster's order: %v", x.order)
		x.mu.Unlock()
		x.Logf("the copy's order, where it chose a node or (victims): %v", x.scored)
		x.Logf("slots in the cluster: %v; in the copy: %v", x.slots(), slotsOf(simulation.List[*v1alpha1.ZoneReservation](c)))
	}
	require.Empty(x, lines, "%s: %s", what, strings.Join(slices.Sorted(maps.Keys(x.cluster.features)), ", "))
}

// slots says where slots are, by the statuses of the cluster's reservations.
func (x *comparison) slots() []string {
	x.Helper()
	list := &v1alpha1.ZoneReservationList{}
	require.NoError(x, x.Client.List(x.Context(), list))
	var out []*v1alpha1.ZoneReservation
	for i := range list.Items {
		out = append(out, &list.Items[i])
	}
	return slotsOf(out)
}

func slotsOf(reservations []*v1alpha1.ZoneReservation) (out []string) {
	for _, r := range reservations {
		out = append(out, fmt.Sprintf("%s %+v", r.Name, r.Status))
	}
	return out
}

// said is what the scheduler wrote on a pod.
func said(pod *v1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse {
			return c.Message
		}
	}
	return ""
}

// compareReasons has the scheduler try again what waits, and compares what it says with what the filters say on a copy.
// What it says of members of gangs depends on which of them it tried last.
func (x *comparison) compareReasons() {
	x.hold()
	x.scheduler.SchedulingQueue.MoveAllToActiveOrBackoffQueue(klog.Logger{}, framework.EventUnschedulableTimeout, nil, nil, nil)
	x.release()
	c := x.copy(nil)
	copies.Lock()
	defer copies.Unlock()
	for _, pod := range x.pods() {
		words := said(pod)
		if pod.Spec.NodeName != "" || !strings.Contains(words, " nodes are available: ") || pod.Labels[schedulingv1alpha1.PodGroupLabel] != "" {
			continue
		}
		answer, err := c.Evaluate(x.Context(), pod)
		require.NoError(x, err)
		require.Empty(x, answer.FittingNodes(), "%s fits by the copy; the cluster says %q", pod.Name, words)
		expected := sentence(answer)
		require.True(x, strings.HasPrefix(words, expected), "%s: the cluster says %q, the copy %q", pod.Name, words, expected)
	}
}

// sentence is an answer in the scheduler's words, see framework.FitError.
func sentence(answer *simulation.Evaluation) string {
	out := fmt.Sprintf("0/%d nodes are available: ", len(answer.Nodes))
	if answer.All != nil {
		return out + answer.All.Message() + "."
	}
	count := map[string]int{}
	for _, n := range answer.Nodes {
		for _, reason := range n.Refusal.Reasons {
			count[reason]++
		}
	}
	var parts []string
	for reason, n := range count {
		parts = append(parts, fmt.Sprintf("%d %s", n, reason))
	}
	slices.Sort(parts)
	return out + strings.Join(parts, ", ") + "."
}

// compareLoss takes a zone away from both, with pods that replace the lost ones. In which order pods are tried that
// have waited before is not known to a copy: they go first. So do gangs: when one has its turn again depends on when it
// had its last.
func (x *comparison) compareLoss() {
	lost := x.cluster.zones[0]
	for _, pod := range x.pods() {
		switch {
		case pod.Spec.NodeName == "":
			require.NoError(x, client.IgnoreNotFound(x.Delete(x.Context(), pod, client.GracePeriodSeconds(0)))) // the scheduler may preempt it meanwhile
		case pod.Labels[schedulingv1alpha1.PodGroupLabel] != "":
			x.end(pod)
		}
	}
	x.until("the queue is empty", func() bool {
		pending, _ := x.scheduler.SchedulingQueue.PendingPods()
		return len(pending) == 0
	})
	x.runPods()
	s, err := snapshot.Read(x.Context(), x.Client, nil)
	require.NoError(x, err)
	inZone := func(node *v1.Node) bool { return node.Labels[v1.LabelTopologyZone] == lost }
	promises := x.certify(s, lost)
	if !slices.ContainsFunc(x.cluster.nodes, func(node *v1.Node) bool { return !inZone(node) }) {
		return // without nodes a scheduler tries every pod for ever
	}
	loss := x.open(s, nil).Lose(inZone)
	x.hold()
	for _, node := range loss.Nodes {
		require.NoError(x, x.Delete(x.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name}}))
	}
	for _, pod := range slices.Concat(loss.Displaced, loss.Orphans, loss.NodeBound) {
		x.end(pod)
	}
	for _, pod := range loss.Replacements {
		made := pod.DeepCopy()
		made.UID, made.ResourceVersion, made.CreationTimestamp = "", "", metav1.Time{}
		require.NoError(x, x.Create(x.Context(), made), made.Name)
		x.createClaims(made)
	}
	x.until("the pods are in the queue", func() bool {
		known := 0
		for _, pod := range loss.Replacements {
			if x.knows(pod) {
				known++
			}
		}
		return known == len(loss.Replacements)
	})
	time.Sleep(settleTime)
	x.until("the plugins have seen the loss", x.pack.Idle)
	x.release()
	x.requireKept(promises)
	c := x.open(s, x.asItDid())
	c.Lose(inZone)
	x.compare("the loss of "+lost, c, true)
}

// clean takes the cluster away.
func (x *comparison) clean() {
	ctx := context.WithoutCancel(x.Context())
	for _, kind := range snapshot.Kinds() {
		obj := kind.Example()
		options := []client.DeleteAllOfOption{client.GracePeriodSeconds(0)}
		list := kind.List()
		if err := x.List(ctx, list); err != nil || meta.LenList(list) == 0 {
			continue
		}
		switch obj.(type) {
		case *resourcev1.DeviceClass, *storagev1.StorageClass, *v1.Namespace:
			continue
		}
		if namespaced, _ := x.IsObjectNamespaced(obj); namespaced {
			options = append(options, client.InNamespace(x.cluster.name))
		}
		_ = x.DeleteAllOf(ctx, obj, options...)
	}
	x.until("the scheduler has forgotten the cluster", func() bool {
		pending, _ := x.scheduler.SchedulingQueue.PendingPods()
		return len(pending) == 0 && x.scheduler.Cache.NodeCount() == 0
	})
}
