package policy_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"
	"pgregory.net/rapid"

	"zonewise.dev/plugins/zonespread/policy"
)

// deployment plays the part of the Deployment controller with strategy RollingUpdate, and of a scheduler that has
// nothing but the policy to go by. The arithmetic is that of the controller: a new revision grows while all
// pods together are at most replicas + maxSurge, and old pods go as long as replicas - maxUnavailable are ready.
type deployment struct {
	policy                   *policy.Policy
	zones                    []string
	replicas, surge, unavail int
	seen                     int // replicas as the scheduler's informer knows them
	revision                 int
	pods                     []*simPod
	view                     policy.ZoneAvailability
	closed                   string // a zone whose nodes take no pods
}

type simPod struct {
	revision int
	zone     string // empty while it waits
	ready    bool
}

func (d *deployment) count(match func(*simPod) bool) (n int) {
	for _, p := range d.pods {
		if match(p) {
			n++
		}
	}
	return n
}

func (d *deployment) current(p *simPod) bool { return p.revision == d.revision }
func (d *deployment) isReady(p *simPod) bool { return p.ready }

// remove takes n pods away, of those that match, those that choose says first.
func (d *deployment) remove(n int, match func(*simPod) bool, choose func(n int) int) {
	for ; n > 0; n-- {
		var candidates []int
		for i, p := range d.pods {
			if match(p) {
				candidates = append(candidates, i)
			}
		}
		if len(candidates) == 0 {
			return
		}
		i := candidates[choose(len(candidates))]
		d.pods = append(d.pods[:i:i], d.pods[i+1:]...)
	}
}

// reconcile is one step of the controller.
func (d *deployment) reconcile(choose func(n int) int) {
	old := func(p *simPod) bool { return !d.current(p) }
	if over := d.count(d.current) - d.replicas; over > 0 {
		d.remove(over, func(p *simPod) bool { return d.current(p) && !p.ready }, choose)
		d.remove(d.count(d.current)-d.replicas, d.current, choose)
	}
	if add := min(d.replicas+d.surge-len(d.pods), d.replicas-d.count(d.current)); add > 0 {
		for range add {
			d.pods = append(d.pods, &simPod{revision: d.revision})
		}
	}
	least := d.replicas - d.unavail
	newUnready := d.count(func(p *simPod) bool { return d.current(p) && !p.ready })
	spare := len(d.pods) - least - newUnready
	if spare > 0 {
		unready := min(spare, d.count(func(p *simPod) bool { return old(p) && !p.ready }))
		d.remove(unready, func(p *simPod) bool { return old(p) && !p.ready }, choose)
	}
	if extra := d.count(d.isReady) - least; extra > 0 {
		d.remove(min(extra, d.count(old)), func(p *simPod) bool { return old(p) && p.ready }, choose)
	}
}

func (d *deployment) labelsOf(p *simPod) labels.Set {
	return labels.Set{"app": "web", "pod-template-hash": fmt.Sprint(p.revision)}
}

// schedule tries every waiting pod once and returns how many were bound.
func (d *deployment) schedule() (bound int) {
	for _, p := range d.pods {
		if p.zone != "" {
			continue
		}
		podLabels := d.labelsOf(p)
		selector, owner := d.policy.SelectorFor(podLabels), workload(int64(d.seen))
		held := d.policy.HeldFor(&owner, podLabels)
		q := policy.Input{Availability: d.view, Replicas: d.policy.Replicas(&owner, int64(len(d.pods)))}
		for _, zone := range d.zones {
			n := int64(d.count(func(o *simPod) bool { return o.zone == zone && selector.Matches(d.labelsOf(o)) }))
			h := int64(d.count(func(o *simPod) bool { return o.zone == zone && held.Counts(d.labelsOf(o)) }))
			q.Domains = append(q.Domains, policy.Domain{Name: zone, Pods: n, Held: h, Eligible: true})
		}
		table := d.policy.Evaluate(q)
		if zone := best(table, d.zones, func(z string) bool { return z != d.closed }); zone != "" {
			p.zone = zone
			bound++
		}
	}
	return bound
}

func (d *deployment) makeReady() {
	for _, p := range d.pods {
		p.ready = p.zone != ""
	}
}

func (d *deployment) done() bool {
	return len(d.pods) == d.replicas && d.count(d.current) == d.replicas && d.count(d.isReady) == d.replicas
}

// settle lets the rollout run without disturbance and tells whether it came to its end.
func (d *deployment) settle() bool {
	for range 4*(d.replicas+len(d.pods)) + 20 {
		if d.done() {
			return true
		}
		d.reconcile(func(int) int { return 0 })
		d.schedule()
		d.makeReady()
	}
	return d.done()
}

func (d *deployment) perZone(match func(*simPod) bool) map[string]int64 {
	counts := map[string]int64{}
	for _, p := range d.pods {
		if match(p) {
			counts[p.zone]++
		}
	}
	return counts
}

// Random rollouts: any strategy, new revisions while the last one is still on its way, scaling up and down, an
// informer that lags behind, a zone that goes away and comes back. When the disturbances end, every rollout ends.
func TestNoRolloutIsBlockedForEver(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(3, 5).Draw(t, "zones")
		most := rapid.IntRange(1, 16).Draw(t, "replicas")
		names := zoneNames(n)
		p := drawPolicyFor(t, n, int64(most))
		feasible := func(r int) bool {
			sum := int64(0)
			for _, name := range names {
				sum += capOfZone(p, names, name, int64(r))
			}
			return sum >= int64(r)
		}
		if !feasible(most) {
			t.Skip("the caps do not admit the replicas")
		}
		d := &deployment{policy: p, zones: names, replicas: most, seen: most}
		d.surge = rapid.IntRange(0, most).Draw(t, "maxSurge")
		d.unavail = rapid.IntRange(0, most).Draw(t, "maxUnavailable")
		if d.surge+d.unavail == 0 {
			d.surge = 1 // as validation demands
		}
		choose := func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "victim") }
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			switch rapid.IntRange(0, 7).Draw(t, "step") {
			case 0:
				d.revision++
			case 1:
				if r := rapid.IntRange(1, most).Draw(t, "scale"); feasible(r) {
					d.replicas = r
				}
			case 2:
				d.seen = d.replicas
			case 3:
				d.closed = rapid.SampledFrom(names).Draw(t, "closed")
				d.view = policy.ZoneAvailability{d.closed: policy.Closed}
			case 4:
				if d.closed != "" {
					d.view = policy.ZoneAvailability{d.closed: policy.Recovering}
					d.closed = ""
				}
			case 5:
				d.reconcile(choose)
			case 6:
				d.schedule()
			case 7:
				d.makeReady()
			}
		}
		d.closed, d.view, d.seen = "", nil, d.replicas
		require.True(t, d.settle(), "%d of %d ready, zones %v", d.count(d.isReady), d.replicas, d.perZone(d.current))
	})
}

// drawPolicyFor is drawPolicy with replicas taken from the owner or from the pods.
func drawPolicyFor(t *rapid.T, n int, most int64) *policy.Policy {
	source := rapid.SampledFrom([]string{"Owner", "Matching"}).Draw(t, "source")
	return drawPolicy(t, n, most, true, replicas(source))
}
