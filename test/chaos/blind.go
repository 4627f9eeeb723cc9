package chaos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"text/tabwriter"
	"time"

	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	configv1 "k8s.io/kube-scheduler/config/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/internal/shipped"
	"zonewise.dev/test/chaos/history"
)

const (
	// blindQPS is how many requests a second a scheduler may send: no pod waits for its turn.
	blindQPS = 1000
	// awayFor is how long the API server is away, beside its start.
	awayFor = 3 * time.Second
	// seesAfter is how many pods in a row a scheduler has placed by the new view when it is taken to have it. By an old view each of them would
	// have gone to one of three nodes in nine.
	seesAfter = 8
)

// BlindOptions are those of a comparison of what schedulers see after restarts of the API server.
type BlindOptions struct {
	Restarts   int
	Schedulers []BlindScheduler
	Root, Dir  string
	Logf       func(format string, args ...any)
}

// BlindScheduler is one of those that are compared. Its name is that of its profile, too.
type BlindScheduler struct {
	Name, Program string
	// InTree has it run with kube-scheduler's own plugins alone.
	InTree bool
}

// Sight is what a scheduler did after a restart of the API server.
type Sight struct {
	// First is the time from when the API server was ready until a pod was bound that was created since, and Blind until the last one was
	// bound to a node that had been cordoned before that pod was created; 0: none was.
	First, Blind time.Duration
	Binds, Wrong int
}

// Blind has schedulers serve one control plane at the same time, and restarts the API server under all of them, again and again. As soon as
// it is ready, all nodes but those of one zone are cordoned, and only then pods are created. What each scheduler did, by its name, is
// taken from the record.
func Blind(ctx context.Context, o BlindOptions) (_ map[string][]Sight, err error) {
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return nil, err
	}
	c, err := startCluster(ctx, o.Root, o.Dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.stop()) }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	b := &blind{BlindOptions: o, cluster: c, faults: &faults{cluster: c, logf: o.Logf}}
	if b.recorder, err = startRecorder(ctx, c.etcdURL()); err != nil {
		return nil, err
	}
	if err := createAll(ctx, c.client, append(surroundings(), b.nodes()...)...); err != nil {
		return nil, err
	}
	if err := createAll(ctx, c.client, leaseRights()...); err != nil {
		return nil, err
	}
	for _, s := range o.Schedulers {
		rs, err := b.start(ctx, s)
		if err != nil {
			return nil, err
		}
		defer func() {
			cancel()
			rs.stopped()
		}()
		if _, err := rs.leader(ctx); err != nil {
			return nil, err
		}
	}
	for n := range o.Restarts {
		if err := b.restart(ctx, n); err != nil {
			return nil, fmt.Errorf("restart %d: %w", n+1, err)
		}
	}
	x, err := b.index(ctx)
	if err != nil {
		return nil, err
	}
	out := map[string][]Sight{}
	for _, s := range o.Schedulers {
		out[s.Name] = sights(x, s.Name)
	}
	return out, nil
}

// blind is a comparison that goes on.
type blind struct {
	BlindOptions
	cluster  *cluster
	recorder *recorder
	faults   *faults
}

// nodes have room for all pods of a long blindness.
func (b *blind) nodes() (out []client.Object) {
	for _, z := range zones {
		for n := range nodesPerZone {
			node := newNode(z, n+1)
			node.Status.Capacity[v1.ResourcePods] = *resource.NewQuantity(10_000, resource.DecimalSI)
			node.Status.Allocatable = node.Status.Capacity
			out = append(out, node)
		}
	}
	return out
}

// leaseRights let each of the schedulers have a lease of its own.
func leaseRights() []client.Object {
	meta := metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "chaos-leases"}
	return []client.Object{
		&rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "create", "update"},
		}}},
		&rbacv1.RoleBinding{
			ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: shipped.SchedulerUser.Name}},
		},
	}
}

// start starts a scheduler.
func (b *blind) start(ctx context.Context, s BlindScheduler) (*replicas, error) {
	dir := filepath.Join(b.Dir, s.Name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	return startReplicas(ctx, b.cluster, replicaOptions{program: s.Program, dir: dir, qps: blindQPS, edit: func(cfg *configv1.KubeSchedulerConfiguration) {
		cfg.LeaderElection.ResourceName = s.Name
		keepLease(cfg)
		profile := &cfg.Profiles[0]
		profile.SchedulerName = &s.Name
		if s.InTree {
			profile.Plugins, profile.PluginConfig = nil, nil
		}
	}}, nil)
}

// restart restarts the API server, cordons nodes, and creates pods for each scheduler until it sees that.
func (b *blind) restart(ctx context.Context, n int) error {
	if err := b.faults.cause(ctx, fault{kind: apiServerRestarted, lasts: awayFor}); err != nil {
		return err
	}
	var cordoned []*begun
	for i, zone := range zones {
		for number := range nodesPerZone {
			if i == n%len(zones) {
				continue
			}
			one, err := b.faults.changeNode(ctx, "node cordoned", newNode(zone, number+1))
			if err != nil {
				return err
			}
			cordoned = append(cordoned, one)
		}
	}
	if err := b.look(ctx, n); err != nil {
		return err
	}
	for _, one := range cordoned {
		if err := one.end(ctx); err != nil {
			return err
		}
	}
	return (&controllers{client: b.cluster.client}).deleteAll(ctx)
}

// look creates a pod after the other for each scheduler until it sees the cluster as it is.
func (b *blind) look(ctx context.Context, n int) error {
	for deadline, made := time.Now().Add(waitTimeout), 0; ; made++ {
		x, err := b.index(ctx)
		if err != nil {
			return err
		}
		see := 0
		for _, s := range b.Schedulers {
			if sees(x, s.Name) {
				see++
				continue
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("%s does not see the cluster as it is after %s", s.Name, waitTimeout)
			}
			pod := (&service{name: s.Name, milliCPU: 1}).pod(fmt.Sprintf("%s-%d-%d", s.Name, n, made))
			pod.Spec.SchedulerName = s.Name
			if err := persist(ctx, func() error { return client.IgnoreAlreadyExists(b.cluster.client.Create(ctx, pod)) }); err != nil {
				return err
			}
		}
		if see == len(b.Schedulers) {
			return nil
		}
		if err := pause(ctx, tick); err != nil {
			return err
		}
	}
}

// index is what the record shows so far.
func (b *blind) index(ctx context.Context) (*history.Index, error) {
	if err := b.recorder.catchUp(ctx); err != nil {
		return nil, err
	}
	changes, err := b.recorder.record(0)
	if err != nil {
		return nil, err
	}
	return history.NewIndex(&history.Record{Changes: changes, Faults: b.faults.all()}), nil
}

// podsSince are a scheduler's pods that were created after the end of a restart, and before the next one began.
func podsSince(x *history.Index, scheduler string, restart int) (out []*history.Life) {
	for _, l := range x.Lives {
		if l.Pod.Spec.SchedulerName == scheduler && l.Created.Time.After(x.Faults[restart].Ended) &&
			(restart+1 == len(x.Faults) || l.Created.Time.Before(x.Faults[restart+1].Began)) {
			out = append(out, l)
		}
	}
	return out
}

// isWrong reports whether a pod was bound to a node that had been cordoned when the pod was created.
func isWrong(x *history.Index, l *history.Life) bool {
	node, known := history.At(x.Nodes[l.Node()], l.Created.Revision)
	return known && node.Object.Spec.Unschedulable
}

// sees reports whether the last pods of a scheduler are all bound, and where they may.
func sees(x *history.Index, scheduler string) bool {
	pods := podsSince(x, scheduler, len(x.Faults)-1)
	return len(pods) >= seesAfter && !slices.ContainsFunc(pods[len(pods)-seesAfter:], func(l *history.Life) bool {
		return l.Bound == history.Never || isWrong(x, l)
	})
}

// sights returns what a scheduler did after each restart of the record.
func sights(x *history.Index, scheduler string) (out []Sight) {
	for i, f := range x.Faults {
		var s Sight
		for _, l := range podsSince(x, scheduler, i) {
			if l.Bound == history.Never {
				continue
			}
			after := l.Bound.Time.Sub(f.Ended)
			s.Binds++
			s.First = min(cmp.Or(s.First, after), after)
			if isWrong(x, l) {
				s.Wrong++
				s.Blind = max(s.Blind, after)
			}
		}
		out = append(out, s)
	}
	return out
}

// SummarizeBlind prints what each scheduler did.
func SummarizeBlind(w io.Writer, schedulers []BlindScheduler, of map[string][]Sight) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "scheduler\trestarts\tfirst bind: median\tmost\tlast bind by an old view: median\tmost\tbinds by an old view\tof")
	for _, s := range schedulers {
		var first, blind []time.Duration
		binds, wrong := 0, 0
		for _, sight := range of[s.Name] {
			first, blind = append(first, sight.First), append(blind, sight.Blind)
			binds, wrong = binds+sight.Binds, wrong+sight.Wrong
		}
		fmt.Fprintf(table, "%s\t%d\t%.1fs\t%.1fs\t%.1fs\t%.1fs\t%d\t%d\n", s.Name, len(first),
			percentile(first, 0.5).Seconds(), percentile(first, 1).Seconds(), percentile(blind, 0.5).Seconds(), percentile(blind, 1).Seconds(), wrong, binds)
	}
	return table.Flush()
}

// percentile is the nearest one that was seen.
func percentile(of []time.Duration, p float64) time.Duration {
	if len(of) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(of))
	return sorted[min(len(sorted)-1, int(p*float64(len(sorted))))]
}
