package chaos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/internal/controlplane"
)

const (
	// soakServices of soakReplicas pods each come and go in a cycle, a third of them with a policy, and soakGangs of soakMembers.
	soakServices, soakReplicas = 30, 30
	soakGangs, soakMembers     = 60, 5
	// soakRate is how many objects a second are created: below what the machine can take, so that latency is not that of a queue.
	soakRate = 40
	// soakQPS is the scheduler's.
	soakQPS = 1000
	// soakLimit is by how much the last third of a soak may exceed the first.
	soakLimit = 1.1
	// SoakWarmUp is how long a scheduler takes until its memory no longer grows under an even load: client-go's event broadcaster keeps each
	// event for six to twelve minutes (finishTime in tools/events), and the rest of its caches fill sooner.
	SoakWarmUp = 12 * time.Minute
)

// SoakOptions are those of a soak.
type SoakOptions struct {
	// Cycles that begin in the Duration after WarmUp are compared.
	Duration, WarmUp   time.Duration
	Nodes              int
	Root, Program, Dir string
	Logf               func(format string, args ...any)
}

// Cycle is what was seen in one load cycle: its pods came, were bound, and went.
type Cycle struct {
	// Latencies are from the request that creates a pod to the event that shows it bound. Those of gangs, which wait for their members, are
	// not among them.
	Latencies []time.Duration
	// Requests are the scheduler's in this cycle; Memory is what is resident at its end, and Heap what the last garbage collection left, in
	// bytes.
	Requests, Goroutines, Memory, Heap float64
}

// Soak runs load cycles on simulated nodes for a time, and returns what each saw. The names in each are new, so that whatever is kept
// of a name that is gone shows.
func Soak(ctx context.Context, o SoakOptions) (cycles []Cycle, err error) {
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return nil, err
	}
	c, err := startQuietCluster(ctx, o.Root, o.Dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.plane.Stop()) }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := createAll(ctx, c.client, append(surroundings(), soakNodes(o.Nodes)...)...); err != nil {
		return nil, err
	}
	kubelets, err := startKubelets(ctx, c, o.Root, o.Dir)
	if err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() {
		ended <- kubelets.Wait()
		cancel()
	}()
	s, err := startSoak(ctx, c, soakServices, o.Program, o.Dir)
	if err != nil {
		return nil, err
	}
	defer func() {
		early := ctx.Err() != nil
		cancel()
		if ended := <-ended; early {
			err = errors.Join(err, fmt.Errorf("kwok: %w", ended))
		}
		s.replicas.stopped()
	}()
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	warm := time.Now().Add(o.WarmUp)
	for n, end := 1, warm.Add(o.Duration); time.Now().Before(end); n++ {
		begun := time.Now()
		cycle, err := s.cycle(ctx, n)
		if err != nil {
			return nil, fmt.Errorf("cycle %d: %w", n, err)
		}
		of := "to warm up"
		if !begun.Before(warm) {
			cycles, of = append(cycles, *cycle), "compared"
		}
		o.Logf("cycle %d, %s: p99 %s, %.0f requests, %.0f goroutines, %.0f MB resident, %.0f MB heap", n, of,
			percentile(cycle.Latencies, 0.99).Round(time.Millisecond), cycle.Requests, cycle.Goroutines, cycle.Memory/1e6, cycle.Heap/1e6)
	}
	return cycles, nil
}

// startQuietCluster starts a control plane with etcd's history compacted as usual, and nothing recorded.
func startQuietCluster(ctx context.Context, root, dir string) (_ *cluster, err error) {
	log, err := os.Create(filepath.Join(dir, "controlplane.log"))
	if err != nil {
		return nil, err
	}
	c := &cluster{}
	c.plane, err = controlplane.Start(controlplane.Options{Assets: assets(root), Dir: dir, Data: dir, Scheme: scheme, Output: log})
	if err != nil {
		return nil, err
	}
	if err := c.connect(ctx); err != nil {
		return nil, errors.Join(err, c.plane.Stop())
	}
	return c, nil
}

func soakNodes(n int) (out []client.Object) {
	for i := range n {
		node := newNode(zones[i%len(zones)], i)
		node.Name = fmt.Sprintf("soak-%d", i)
		node.Labels[v1.LabelHostname] = node.Name
		out = append(out, node)
	}
	return out
}

// startKubelets has kwok report the nodes, run bound pods and end deleted ones, until ctx ends.
func startKubelets(ctx context.Context, c *cluster, root, dir string) (*exec.Cmd, error) {
	log, err := os.Create(filepath.Join(dir, "kwok.log"))
	if err != nil {
		return nil, err
	}
	return c.plane.StartKubelets(ctx, filepath.Join(root, "demo", "cluster", "kwok.yaml"), log)
}

// soak is one that goes on.
type soak struct {
	cluster  *cluster
	replicas *replicas
	leader   *replica
	services int // of each cycle, with as many gangs to each as there are to soakServices
	rate     flowcontrol.RateLimiter

	mu        sync.Mutex           // guards what follows
	created   map[string]time.Time // pods that wait, by name
	latencies []time.Duration
}

// startSoak starts a scheduler, until ctx ends and the soak's replicas have stopped.
func startSoak(ctx context.Context, c *cluster, services int, program, dir string) (*soak, error) {
	rs, err := startReplicas(ctx, c, replicaOptions{program: program, dir: dir, qps: soakQPS, edit: keepLease}, nil)
	return &soak{
		cluster: c, replicas: rs, services: services, rate: flowcontrol.NewTokenBucketRateLimiter(soakRate, 1), created: map[string]time.Time{},
	}, err
}

// begin waits until the scheduler leads, and notes when pods are bound, until ctx ends.
func (s *soak) begin(ctx context.Context) (err error) {
	if s.leader, err = s.replicas.leader(ctx); err != nil {
		return err
	}
	return s.watch(ctx)
}

// watch notes when pods are bound, until ctx ends.
func (s *soak) watch(ctx context.Context) error {
	config := rest.CopyConfig(s.cluster.admin)
	config.Timeout = 0 // it would end the watch
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	pods, err := kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	// The API server ends the watch of a client that is slow. It goes on where it ended, so that nothing is missed.
	events, err := watchtools.NewRetryWatcherWithContext(ctx, pods.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: kube.CoreV1().Pods(namespace).Watch,
	})
	if err != nil {
		return err
	}
	go func() {
		for event := range events.ResultChan() {
			if pod, ok := event.Object.(*v1.Pod); ok && pod.Spec.NodeName != "" {
				s.bound(pod.Name)
			}
		}
	}()
	return nil
}

func (s *soak) bound(pod string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if created, waits := s.created[pod]; waits {
		delete(s.created, pod)
		s.latencies = append(s.latencies, time.Since(created))
	}
}

// waiting is how many pods of services wait, as far as the watch has seen.
func (s *soak) waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.created)
}

// cycle has a load come and go.
func (s *soak) cycle(ctx context.Context, number int) (*Cycle, error) {
	before, err := s.leader.metrics(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.fill(ctx, number); err != nil {
		return nil, err
	}
	if err := persist(ctx, func() error { return s.allBound(ctx) }); err != nil {
		return nil, err
	}
	c := &controllers{client: s.cluster.client}
	if err := c.deleteAll(ctx); err != nil {
		return nil, err
	}
	after, err := s.leader.metrics(ctx)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	out := &Cycle{
		Latencies: s.latencies, Requests: after["rest_client_requests_total"] - before["rest_client_requests_total"],
		Goroutines: after["go_goroutines"], Memory: after["process_resident_memory_bytes"], Heap: after["go_gc_heap_live_bytes"],
	}
	s.latencies = nil
	return out, nil
}

// fill creates services with hard constraints, some with policies and some with room reserved, and gangs.
func (s *soak) fill(ctx context.Context, number int) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(8)
	create := func(o client.Object) {
		group.Go(func() error {
			if err := s.rate.Wait(ctx); err != nil {
				return err
			}
			if pod, ok := o.(*v1.Pod); ok && pod.Spec.TopologySpreadConstraints != nil {
				s.mu.Lock()
				s.created[pod.Name] = time.Now()
				s.mu.Unlock()
			}
			return s.cluster.client.Create(ctx, o)
		})
	}
	for i := range s.services {
		app := &service{name: fmt.Sprintf("service-%d-%d", number, i), milliCPU: 250, maxSkew: 1}
		switch i % 6 {
		case 0, 1:
			create(newPolicy(app.name, func(p *v1alpha1.ZoneSpreadPolicySpec) { p.MaxPerZone = ptr.To(intstr.FromInt32(soakReplicas)) }))
		case 2:
			create(newReservation(app.name, app.name, "250m", v1alpha1.ModeHeadroom, 2))
		}
		for n := range soakReplicas {
			create(app.pod(fmt.Sprintf("%s-%d", app.name, n)))
		}
	}
	for i := range soakGangs * s.services / soakServices {
		g := &gang{size: soakMembers, minMember: soakMembers}
		g.name = fmt.Sprintf("gang-%d-%d", number, i)
		g.gang, g.milliCPU = g.name, 250
		create(g.group())
		for n := range soakMembers {
			create(g.pod(fmt.Sprintf("%s-%d", g.name, n)))
		}
	}
	return group.Wait()
}

// allBound is an error as long as a pod waits.
func (s *soak) allBound(ctx context.Context) error {
	if n := s.waiting(); n > 0 {
		return fmt.Errorf("%d pods of services wait", n)
	}
	pods := &v1.PodList{}
	if err := s.cluster.client.List(ctx, pods, client.InNamespace(namespace), client.MatchingFields{"spec.nodeName": ""}); err != nil {
		return err
	}
	if len(pods.Items) > 0 {
		return fmt.Errorf("%d pods wait", len(pods.Items))
	}
	return nil
}

// percentile is the nearest one that was seen.
func percentile(of []time.Duration, p float64) time.Duration {
	if len(of) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(of))
	return sorted[min(len(sorted)-1, int(p*float64(len(sorted))))]
}

// figure is what the last third of a soak is compared with the first by.
type figure struct {
	name        string
	first, last float64
	unit        string
}

func (f *figure) ratio() float64 { return f.last / cmp.Or(f.first, 1) }

// figures compares the first third of the cycles with the last. It returns nil if there are too few.
func figures(cycles []Cycle) []figure {
	if len(cycles) < 3 {
		return nil
	}
	third := len(cycles) / 3
	first, last := cycles[:third], cycles[len(cycles)-third:]
	mean := func(of []Cycle, value func(*Cycle) float64) float64 {
		sum := 0.0
		for i := range of {
			sum += value(&of[i])
		}
		return sum / float64(len(of))
	}
	p99 := func(of []Cycle) float64 {
		var all []time.Duration
		for i := range of {
			all = append(all, of[i].Latencies...)
		}
		return percentile(all, 0.99).Seconds() * 1000
	}
	out := []figure{{"p99 from creation to bind", p99(first), p99(last), "ms"}}
	for _, f := range []struct {
		name, unit string
		value      func(*Cycle) float64
	}{
		{"requests of a cycle", "", func(c *Cycle) float64 { return c.Requests }},
		{"goroutines", "", func(c *Cycle) float64 { return c.Goroutines }},
		{"resident memory", "MB", func(c *Cycle) float64 { return c.Memory / 1e6 }},
		{"heap", "MB", func(c *Cycle) float64 { return c.Heap / 1e6 }},
	} {
		out = append(out, figure{f.name, mean(first, f.value), mean(last, f.value), f.unit})
	}
	return out
}

// SummarizeSoak prints how the last third of a soak compares with the first. It returns an error that names what has grown by too much.
func SummarizeSoak(w io.Writer, cycles []Cycle) error {
	all := figures(cycles)
	if all == nil {
		return fmt.Errorf("%d cycles are too few to compare", len(cycles))
	}
	pods := 0
	for i := range cycles {
		pods += len(cycles[i].Latencies) + soakGangs*soakMembers
	}
	fmt.Fprintf(w, "%d cycles, %d pods\n", len(cycles), pods)
	var errs []error
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "  \tfirst third\tlast third\tratio")
	for i := range all {
		f := &all[i]
		fmt.Fprintf(table, "  %s\t%.0f %s\t%.0f %s\t%.2f\n", f.name, f.first, f.unit, f.last, f.unit, f.ratio())
		if f.ratio() > soakLimit {
			errs = append(errs, fmt.Errorf("%s: %.2f times as much in the last third as in the first", f.name, f.ratio()))
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	third := len(cycles) / 3
	fmt.Fprintf(w, "the cycles' own 99th percentiles: %s in the first third, %s in the last\n", spread(cycles[:third]), spread(cycles[len(cycles)-third:]))
	return errors.Join(errs...)
}

// spread is from where to where the 99th percentiles of cycles are, with their median.
func spread(of []Cycle) string {
	var each []time.Duration
	for i := range of {
		each = append(each, percentile(of[i].Latencies, 0.99))
	}
	return fmt.Sprintf("%d to %d ms, median %d", slices.Min(each).Milliseconds(), slices.Max(each).Milliseconds(), percentile(each, 0.5).Milliseconds())
}
