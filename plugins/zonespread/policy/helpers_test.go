package policy_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/plugins/zonespread/policy"
)

type change func(*v1alpha1.ZoneSpreadPolicySpec)

// object is policy shop/web for app=web, with changes.
func object(changes ...change) *v1alpha1.ZoneSpreadPolicy {
	obj := &v1alpha1.ZoneSpreadPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "uid-web", Generation: 3},
		Spec:       v1alpha1.ZoneSpreadPolicySpec{PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
	}
	for _, c := range changes {
		c(&obj.Spec)
	}
	return obj
}

func compile(t require.TestingT, changes ...change) *policy.Policy {
	p, errs := policy.Compile(object(changes...))
	require.Empty(t, errs)
	return p
}

func withZones(zones ...v1alpha1.ZoneSpreadZone) change {
	return func(s *v1alpha1.ZoneSpreadPolicySpec) { s.Zones = zones }
}

func weighted(name string, weight int32) v1alpha1.ZoneSpreadZone {
	return v1alpha1.ZoneSpreadZone{Name: name, Weight: new(weight)}
}

func capped(name string, weight, maxPods int32) v1alpha1.ZoneSpreadZone {
	return v1alpha1.ZoneSpreadZone{Name: name, Weight: new(weight), MaxPods: new(maxPods)}
}

func maxPerZone(v string) change {
	return func(s *v1alpha1.ZoneSpreadPolicySpec) { s.MaxPerZone = new(intstr.Parse(v)) }
}

func maxSkew(n int32) change { return func(s *v1alpha1.ZoneSpreadPolicySpec) { s.MaxSkew = n } }

func minZones(n int32) change {
	return func(s *v1alpha1.ZoneSpreadPolicySpec) { s.MinZones = new(n) }
}

func quorumSafe(s *v1alpha1.ZoneSpreadPolicySpec) { s.QuorumSafe = true }

func roundDown(s *v1alpha1.ZoneSpreadPolicySpec) { s.PercentRounding = v1alpha1.RoundDown }

func scheduleAnyway(s *v1alpha1.ZoneSpreadPolicySpec) {
	s.WhenUnsatisfiable = v1alpha1.ScheduleAnyway
}

func defaultWeight(n int32) change {
	return func(s *v1alpha1.ZoneSpreadPolicySpec) { s.DefaultWeight = new(n) }
}

func replicas(v string) change {
	return func(s *v1alpha1.ZoneSpreadPolicySpec) { s.Replicas = new(intstr.Parse(v)) }
}

func countGangs(s *v1alpha1.ZoneSpreadPolicySpec) { s.Unit = v1alpha1.UnitPodGroup }

func allRevisions(s *v1alpha1.ZoneSpreadPolicySpec) { s.MatchLabelKeys = []string{} }

// zoneNames are a, b, c and so on.
func zoneNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = string(rune('a' + i))
	}
	return names
}

// domains makes eligible zones a, b, c and so on, with these counts.
func domains(counts ...int64) []policy.Domain {
	ds := make([]policy.Domain, len(counts))
	for i, name := range zoneNames(len(counts)) {
		ds[i] = policy.Domain{Name: name, Pods: counts[i], Held: counts[i], Eligible: true}
	}
	return ds
}

// verdicts are the rules for the zones a, b, c and so on.
func verdicts(t *policy.Table, n int) string {
	rules := make([]string, n)
	for i, name := range zoneNames(n) {
		rules[i] = t.Rule(name).String()
	}
	return strings.Join(rules, " ")
}

// availabilities are the words of the documentation.
var availabilities = map[string]policy.Availability{
	"closed": policy.Closed, "full": policy.Full, "recovering": policy.Recovering, "closing": policy.Closing,
	"excluded": policy.Excluded, "never-open": policy.Absent,
}

// written is a policy whose spec is written in YAML, for app=web.
func written(t require.TestingT, spec string) *policy.Policy {
	obj := object()
	require.NoError(t, yaml.UnmarshalStrict([]byte(spec), &obj.Spec))
	p, errs := policy.Compile(obj)
	require.Empty(t, errs)
	return p
}

// situation reads zones with their pods as the documentation writes them, such as "a 3, b 0 closed". A zone that is
// ineligible has no node for the pod, and one that is gone has none at all.
func situation(t require.TestingT, zones string) policy.Input {
	in := policy.Input{Availability: policy.ZoneAvailability{}}
	for zone := range strings.SplitSeq(zones, ", ") {
		words := strings.Fields(zone)
		pods, err := strconv.ParseInt(words[1], 10, 64)
		require.NoError(t, err)
		if !slices.Contains(words, "gone") {
			in.Domains = append(in.Domains, policy.Domain{
				Name: words[0], Pods: pods, Held: pods, Eligible: !slices.Contains(words, "ineligible"),
			})
		}
		for _, word := range words[2:] {
			if availability, known := availabilities[word]; known {
				in.Availability[words[0]] = availability
			} else {
				require.Contains(t, []string{"gone", "ineligible"}, word)
			}
		}
	}
	return in
}

// best is the allowed zone with the highest score, the first of equals; "" when no zone is allowed. room says
// which zones have a node with room, as other filters would.
func best(t *policy.Table, names []string, room func(string) bool) string {
	var open []string
	for _, name := range names {
		if room(name) && (t.Rule(name).OK() || !t.Policy().Hard()) {
			open = append(open, name)
		}
	}
	found, top := "", int64(-1)
	for i, score := range t.Scores(open) {
		if score > top {
			found, top = open[i], score
		}
	}
	return found
}

// place puts pods one after the other where the policy wants them and returns the counts by zone; it stops when the
// policy refuses every zone.
func place(p *policy.Policy, pods int, names []string, view policy.ZoneAvailability,
	room func(zone string, held int64) bool, counts map[string]int64,
) int {
	for placed := range pods {
		q := policy.Input{Replicas: int64(pods), Availability: view}
		for _, name := range names {
			q.Domains = append(q.Domains,
				policy.Domain{Name: name, Pods: counts[name], Held: counts[name], Eligible: true})
		}
		zone := best(p.Evaluate(q), names, func(z string) bool { return room(z, counts[z]) })
		if zone == "" {
			return placed
		}
		counts[zone]++
	}
	return pods
}

func plenty(string, int64) bool { return true }

// drawPolicy makes a random policy over n zones. Caps, when drawn, leave room for all replicas.
func drawPolicy(t *rapid.T, n int, r int64, withCaps bool, more ...change) *policy.Policy {
	return compile(t, drawChanges(t, n, r, withCaps, more...)...)
}

// drawChanges draws what drawPolicy compiles.
func drawChanges(t *rapid.T, n int, r int64, withCaps bool, more ...change) []change {
	changes := []change{maxSkew(rapid.Int32Range(1, 4).Draw(t, "maxSkew")), replicas(fmt.Sprint(r))}
	var zones []v1alpha1.ZoneSpreadZone
	for _, name := range zoneNames(n) {
		if rapid.Bool().Draw(t, "declared "+name) {
			zones = append(zones, weighted(name, rapid.Int32Range(1, 9).Draw(t, "weight "+name)))
		}
	}
	changes = append(changes, withZones(zones...), defaultWeight(rapid.Int32Range(1, 5).Draw(t, "defaultWeight")))
	if withCaps {
		switch rapid.IntRange(0, 3).Draw(t, "kind of cap") {
		case 0:
			least := (r + int64(n) - 1) / int64(n)
			changes = append(changes, maxPerZone(fmt.Sprint(rapid.Int64Range(least, r+1).Draw(t, "maxPerZone"))))
		case 1:
			least := int32((100 + n - 1) / n)
			changes = append(changes, maxPerZone(fmt.Sprintf("%d%%", rapid.Int32Range(least, 100).Draw(t, "percent"))))
		case 2:
			if quorum := (r - 1) / 2; r >= 3 && quorum*int64(n) >= r {
				changes = append(changes, quorumSafe)
			}
		case 3:
			for i := range zones {
				zones[i].MaxPods = new(int32(rapid.Int64Range((r+int64(n)-1)/int64(n), r+1).Draw(t, "maxPods")))
			}
		}
	}
	return append(changes, more...)
}
