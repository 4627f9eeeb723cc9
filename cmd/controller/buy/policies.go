package buy

import (
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/buy"
	"zonewise.dev/cluster/census"
	"zonewise.dev/cluster/policies"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/plugins/zonespread/counts"
	"zonewise.dev/plugins/zonespread/policy"
)

// workloadKinds say how many replicas are wanted, by which caps are scaled.
var workloadKinds = []string{"replicasets.apps", "statefulsets.apps", "jobs.batch", "replicationcontrollers"}

// policyBuyersOf returns the policies that want something, or whose status still says so.
func policyBuyersOf(cluster *snapshot.Snapshot, view *buy.Cluster, seen refusals) []*buyer {
	var out []*buyer
	for _, p := range snapshot.List[*v1alpha1.ZoneSpreadPolicy](cluster) {
		if p.DeletionTimestamp != nil ||
			p.Spec.Buy == nil && meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionBuying) == nil {
			continue
		}
		p = p.DeepCopy()
		out = append(out, &buyer{
			object: p, status: &p.Status.Buy, conditions: &p.Status.Conditions, name: p.Namespace + "/" + p.Name,
			nothing: "no pod waits because of the policy",
		})
	}
	waiting := refusedBy(cluster, view.Now, seen)
	for _, b := range out {
		p := b.object.(*v1alpha1.ZoneSpreadPolicy) //nolint:forcetypeassert // made above
		if p.Spec.Buy == nil {
			continue
		}
		b.demand = buy.PolicyDemand(p, waiting[p.UID], view)
		if resource := cluster.Unread(workloadKinds...); resource != "" {
			b.demand.Frozen = resource + " cannot be read"
		}
	}
	return out
}

// refusals are when the pods that wait because of a policy were first seen to do so, by their UIDs. They are not
// written down: after a restart of the controller, room is asked for another hour.
type refusals map[types.UID]time.Time

// refusedBy returns the pods for which policies want room, by the UIDs of the policies. A pod that several of them make
// wait is the first one's, by name.
func refusedBy(cluster *snapshot.Snapshot, now time.Time, seen refusals) map[types.UID][]buy.Refused {
	compiled := map[string][]*policy.Policy{} // by namespace
	for _, p := range snapshot.List[*v1alpha1.ZoneSpreadPolicy](cluster) {
		if p.DeletionTimestamp != nil || p.Spec.Buy == nil {
			continue
		}
		if c, errs := policy.Compile(p); len(errs) == 0 {
			compiled[p.Namespace] = append(compiled[p.Namespace], c)
		}
	}
	for _, all := range compiled {
		slices.SortFunc(all, func(a, b *policy.Policy) int { return strings.Compare(a.Key(), b.Key()) })
	}
	refusers, waiting := map[*v1.Pod]*policy.Policy{}, map[types.UID]bool{}
	for _, pod := range snapshot.List[*v1.Pod](cluster) {
		for _, p := range compiled[pod.Namespace] {
			if !p.Selects(pod.Labels) || !buy.Waits(pod, p) {
				continue
			}
			waiting[pod.UID] = true
			if _, known := seen[pod.UID]; !known {
				seen[pod.UID] = now
			}
			first := seen[pod.UID]
			if now.Sub(first) < buy.WaitsAtMost && now.Sub(buy.WaitsSince(pod, first)) >= buy.WaitsAtLeast {
				refusers[pod] = p
			}
			break
		}
	}
	maps.DeleteFunc(seen, func(uid types.UID, _ time.Time) bool { return !waiting[uid] })
	if len(refusers) == 0 {
		return nil // as nearly always: to count all pods costs CPU
	}
	return decide(census.Take(cluster), refusers)
}

// group is pods about which all policies decide alike.
type group struct {
	policy    *policy.Policy
	decisions []*policies.Decision // the first is that of the policy
	pods      []*v1.Pod
}

// decide returns what the policies decide about pods, by the UIDs of those that made them wait.
func decide(c *census.Census, refusers map[*v1.Pod]*policy.Policy) map[types.UID][]buy.Refused {
	reader := policies.Read(c)
	groups := map[string]*group{}
	var keys []string
	for _, pod := range c.Pods { // by namespace and name
		over := refusers[pod.Pod]
		if over == nil {
			continue
		}
		g := &group{policy: over}
		alike := []string{over.Key()}
		for _, p := range reader.In(pod.Namespace) {
			if !p.Hard() || !p.Selects(pod.Labels) {
				continue
			}
			d := reader.Decide(p, pod.Pod)
			alike = append(alike, d.Key)
			if p.UID() == over.UID() {
				g.decisions = append([]*policies.Decision{d}, g.decisions...)
			} else {
				g.decisions = append(g.decisions, d)
			}
		}
		key := strings.Join(alike, "\x00")
		if groups[key] == nil {
			groups[key] = g
			keys = append(keys, key)
		}
		groups[key].pods = append(groups[key].pods, pod.Pod)
	}
	slices.Sort(keys)
	var queries []counts.Query
	for _, key := range keys {
		for _, d := range groups[key].decisions {
			queries = append(queries, d.Queries()...)
		}
	}
	answers := c.Count(queries)
	out := map[types.UID][]buy.Refused{}
	for _, key := range keys {
		g := groups[key]
		refused := buy.Refused{Pods: g.pods, Changes: g.changes}
		for i, d := range g.decisions {
			n := len(d.Queries())
			table := d.Table(answers[:n])
			answers = answers[n:]
			if i == 0 {
				refused.Table = table
			} else {
				refused.Beside = append(refused.Beside, table)
			}
		}
		out[g.policy.UID()] = append(out[g.policy.UID()], refused)
	}
	return out
}

// changes returns what another pod changes about each decision once it is placed.
func (g *group) changes(pod *v1.Pod) (out []policy.Change) {
	for _, d := range g.decisions {
		out = append(out, d.ChangeBy(pod))
	}
	return out
}
