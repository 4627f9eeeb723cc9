package policy_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/plugins/zonespread/policy"
)

// FuzzPolicy judges by whatever decodes as a ZoneSpreadPolicy, as if no CustomResourceDefinition had looked at it. Each
// error names a field; a policy that is accepted never lets a zone grow beyond a cap of its own, and scores stay within
// the framework's range.
func FuzzPolicy(f *testing.F) {
	const selector = `"podSelector":{"matchLabels":{"app":"web"}}`
	for _, seed := range []string{
		`{` + selector +
			`,"zones":[{"name":"a","weight":2,"maxPods":3},{"name":"b"}],"maxPerZone":"50%","quorumSafe":true,"minZones":2}`,
		`{` + selector +
			`,"defaultWeight":0,"zones":[{"name":"a","weight":10000}],"maxSkew":1000000,"whenUnsatisfiable":"ScheduleAnyway"}`,
		`{` + selector + `,"unit":"PodGroup","replicas":"Matching","maxPerZone":1,"percentRounding":"Down"}`,
		`{` + selector +
			`,"unavailableZones":{"downAfter":"1s","fullAfter":"5m","recovery":{"policy":"Gradual","window":"1h"}},"replicas":7}`,
		`{"podSelector":{"matchExpressions":[{"key":"","operator":"x"}]},"zones":[{"name":""},{"name":"","weight":-1,"maxPods":0}],"maxPerZone":"-1%","minZones":0,"maxSkew":-1,"topologyKey":"kubernetes.io/hostname","replicas":"x"}`,
	} {
		f.Add([]byte(seed), uint8(5))
	}
	f.Fuzz(func(t *testing.T, raw []byte, pods uint8) {
		obj := &v1alpha1.ZoneSpreadPolicy{}
		obj.Namespace, obj.Name, obj.UID = "shop", "web", "web"
		if json.Unmarshal(raw, &obj.Spec) != nil {
			return
		}
		p, errs := policy.Compile(obj)
		for _, err := range errs {
			require.NotEmpty(t, err.Field, err.Error())
		}
		if p == nil {
			require.NotEmpty(t, errs)
			return
		}
		names, counts := zoneNames(3), map[string]int64{}
		placed := place(p, int(pods), names, policy.ZoneAvailability{}, plenty, counts)
		require.LessOrEqual(t, placed, int(pods))
		caps := map[string]int64{}
		for _, z := range obj.Spec.Zones { // of zones with one name the last counts
			caps[z.Name] = policy.Unlimited
			if z.MaxPods != nil {
				caps[z.Name] = max(1, int64(*z.MaxPods))
			}
		}
		for zone, pods := range caps {
			if p.Hard() {
				require.LessOrEqual(t, counts[zone], pods, zone)
			}
		}
		q := policy.Input{Replicas: int64(pods)}
		for _, name := range names {
			q.Domains = append(q.Domains,
				policy.Domain{Name: name, Pods: counts[name], Held: counts[name], Eligible: true})
		}
		for _, score := range p.Evaluate(q).Scores(names) {
			require.True(t, score >= 0 && score <= 100, "%d", score)
		}
	})
}
