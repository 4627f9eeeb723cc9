package chaos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/client"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/apis/v1alpha1"
)

const (
	// tenant is the namespace of the one who makes objects without end. In each cycle it has floodPods pods for each service of the others, floodRate
	// a second. All of them match all of its policies, and half are members of gangs that never come to be whole.
	tenant    = "tenant"
	floodPods = 6
	floodRate = 10
	// floodNodes is how many nodes there are, without kubelets.
	floodNodes = 200
	// floodWriters create the flood, each as fast as it is answered.
	floodWriters = 16
	// floodLimit is by how much the others' 99th percentile may grow.
	floodLimit = 1.2
	// statusLimit is how long a status is waited for.
	statusLimit = 30 * time.Second
)

// FloodOptions are those of a flood.
type FloodOptions struct {
	Groups, Policies int // how many the tenant makes
	// Cycles of load are measured before the flood, and again when its PodGroups stand and when its policies do.
	Cycles             int
	Services           int // of the others in each cycle; 0: as many as in a soak
	Root, Program, Dir string
	Logf               func(format string, args ...any)
}

// Phase is a part of a flood: the cycles of the others' load in it.
type Phase struct {
	Name   string
	Cycles []Cycle
	// GroupStatus and PolicyStatus are how long after its creation a PodGroup and a policy of another tenant had a status, at the end of the phase.
	GroupStatus, PolicyStatus time.Duration
	// Stands says that all objects have been made that the phase is about.
	Stands bool
}

// Flood has a load come and go beside a tenant who makes PodGroups that never come to be whole, and then policies that select all pods of its
// namespace.
func Flood(ctx context.Context, o FloodOptions) (_ []Phase, err error) {
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
	objects := append(surroundings(), soakNodes(floodNodes)...)
	objects = append(objects, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenant}})
	if err := createAll(ctx, c.client, objects...); err != nil {
		return nil, err
	}
	s, err := startSoak(ctx, c, cmp.Or(o.Services, soakServices), o.Program, o.Dir)
	if err != nil {
		return nil, err
	}
	defer func() {
		cancel()
		s.replicas.stopped()
	}()
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	f := &flood{FloodOptions: o, soak: s}
	if _, err := f.cycle(ctx); err != nil { // warms up
		return nil, err
	}
	err = f.run(ctx)
	return f.phases, err
}

// endless is a PodGroup that never has all of its members.
func endless(i int) client.Object {
	return &schedulingv1alpha1.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: fmt.Sprintf("gang-%d", i)},
		Spec:       schedulingv1alpha1.PodGroupSpec{MinMember: 1000},
	}
}

// greedy is a policy that selects all pods of its namespace.
func greedy(i int) client.Object {
	p := &v1alpha1.ZoneSpreadPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: fmt.Sprintf("policy-%d", i)}}
	p.Spec.PodSelector = metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "none", Operator: metav1.LabelSelectorOpDoesNotExist}}}
	return p
}

// flood is one that goes on.
type flood struct {
	FloodOptions
	soak   *soak
	cycles int
	phases []Phase
}

// run measures before, while and after each kind of objects is made.
func (f *flood) run(ctx context.Context) error {
	if err := f.measure(ctx, "before", true, nil); err != nil {
		return err
	}
	for _, kind := range []struct {
		name   string
		n      int
		object func(i int) client.Object
	}{
		{"PodGroups", f.Groups, endless}, {"policies", f.Policies, greedy},
	} {
		made := make(chan error, 1)
		go func() { made <- f.create(ctx, kind.n, kind.object) }()
		if err := f.measure(ctx, kind.name+" are made", false, made); err != nil {
			return err
		}
		if err := f.measure(ctx, fmt.Sprintf("%d %s stand", kind.n, kind.name), true, nil); err != nil {
			return err
		}
	}
	return nil
}

// create makes the objects of a kind.
func (f *flood) create(ctx context.Context, n int, object func(i int) client.Object) error {
	start := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(floodWriters)
	for i := range n {
		group.Go(func() error { return f.soak.cluster.client.Create(ctx, object(i)) })
	}
	err := group.Wait()
	f.Logf("%d objects were made in %s", n, time.Since(start).Round(time.Second))
	return err
}

// measure adds a phase: the cycles of the options, or, while the flood is made, cycles until made says how that ended.
func (f *flood) measure(ctx context.Context, name string, stands bool, made <-chan error) error {
	p := Phase{Name: name, Stands: stands}
	for going := true; going; {
		cycle, err := f.cycle(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		f.Logf("%s: p50 %s, p99 %s, %.0f MB resident", name, percentile(cycle.Latencies, 0.5).Round(time.Millisecond),
			percentile(cycle.Latencies, 0.99).Round(time.Millisecond), cycle.Memory/1e6)
		p.Cycles = append(p.Cycles, *cycle)
		going = made != nil || len(p.Cycles) < f.Cycles
		select {
		case err := <-made:
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			going = false
		default:
		}
	}
	group := (&gang{service: service{name: fmt.Sprintf("status-%d", f.cycles)}, minMember: 1}).group()
	policy := newPolicy(group.Name, func(*v1alpha1.ZoneSpreadPolicySpec) {})
	var errGroup, errPolicy error
	p.GroupStatus, errGroup = f.status(ctx, group, func() bool { return group.Status.Phase != "" })
	p.PolicyStatus, errPolicy = f.status(ctx, policy, func() bool { return len(policy.Status.Conditions) > 0 })
	f.phases = append(f.phases, p)
	return errors.Join(errGroup, errPolicy)
}

// cycle has the load come and go, with the tenant's pods beside it.
func (f *flood) cycle(ctx context.Context) (*Cycle, error) {
	f.cycles++
	var out *Cycle
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		out, err = f.soak.cycle(groupCtx, f.cycles)
		return err
	})
	group.Go(func() error {
		rate := flowcontrol.NewTokenBucketRateLimiter(floodRate, 1)
		for i := range floodPods * f.soak.services {
			pod := (&service{name: "tenant", milliCPU: 1}).pod(fmt.Sprintf("tenant-%d-%d", f.cycles, i))
			pod.Namespace = tenant
			if i%2 == 0 {
				pod.Labels[schedulingv1alpha1.PodGroupLabel] = endless(i).GetName()
			}
			if err := errors.Join(rate.Wait(groupCtx), f.soak.cluster.client.Create(groupCtx, pod)); err != nil {
				return err
			}
		}
		return nil
	})
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return out, persist(ctx, func() error {
		return f.soak.cluster.client.DeleteAllOf(ctx, &v1.Pod{}, client.InNamespace(tenant), client.GracePeriodSeconds(0))
	})
}

// status is how long it takes until an object of another tenant has a status, at most statusLimit.
func (f *flood) status(ctx context.Context, object client.Object, has func() bool) (time.Duration, error) {
	if err := f.soak.cluster.client.Create(ctx, object); err != nil {
		return 0, err
	}
	start := time.Now()
	for !has() && time.Since(start) < statusLimit {
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return 0, err
		}
		if err := f.soak.cluster.client.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
			return 0, err
		}
	}
	return time.Since(start), f.soak.cluster.client.Delete(ctx, object)
}

// latencies are those of all cycles of a phase.
func (p *Phase) latencies() (out []time.Duration) {
	for i := range p.Cycles {
		out = append(out, p.Cycles[i].Latencies...)
	}
	return out
}

// SummarizeFlood prints what the others saw in each phase, beside the first one. It returns an error that names the phases in which the flood
// stood and they waited for too long.
func SummarizeFlood(w io.Writer, phases []Phase) error {
	if len(phases) == 0 {
		return errors.New("nothing was measured")
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "phase\tcycles\tp50\tp99\tp99 of each cycle\tratio\tresident\tstatus of a PodGroup\tof a policy")
	before := percentile(phases[0].latencies(), 0.99)
	var errs []error
	for i := range phases {
		p := &phases[i]
		all := p.latencies()
		p99 := percentile(all, 0.99)
		ratio := float64(p99) / float64(max(before, 1))
		memory := p.Cycles[len(p.Cycles)-1].Memory / 1e6
		fmt.Fprintf(table, "%s\t%d\t%d ms\t%d ms\t%s\t%.2f\t%.0f MB\t%s\t%s\n", p.Name, len(p.Cycles), percentile(all, 0.5).Milliseconds(),
			p99.Milliseconds(), spread(p.Cycles), ratio, memory, statusAfter(p.GroupStatus), statusAfter(p.PolicyStatus))
		if p.Stands && ratio > floodLimit {
			errs = append(errs, fmt.Errorf("%s: others wait %.2f times as long", p.Name, ratio))
		}
	}
	return errors.Join(append(errs, table.Flush())...)
}

func statusAfter(d time.Duration) string {
	if d >= statusLimit {
		return "not within " + statusLimit.String()
	}
	return fmt.Sprintf("%.1fs", d.Seconds())
}
