package plugins

import (
	"context"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/permitgate"
	"zonewise.dev/plugins/permitgate/plan"
	"zonewise.dev/plugins/zonespread"
	"zonewise.dev/plugins/zonespread/policies"
)

// gangPolicies has gangs planned by the ZoneSpreadPolicies that ZoneSpread applies. Its profiles share them.
type gangPolicies struct {
	mu     sync.Mutex // guards plugin
	plugin *zonespread.ZoneSpread
}

// newZoneSpread is ZoneSpread's factory; the first plugin that it makes is kept.
func (p *Pack) newZoneSpread(ctx context.Context, args runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
	plugin, err := zonespread.New(ctx, args, h)
	if z, ok := plugin.(*zonespread.ZoneSpread); ok && err == nil {
		p.gangPolicies.mu.Lock()
		defer p.gangPolicies.mu.Unlock()
		if p.gangPolicies.plugin == nil {
			p.gangPolicies.plugin = z
		}
	}
	return plugin, err
}

// policiesOf returns the policies for PermitGate, nil where ZoneSpread is not enabled.
func (p *Pack) policiesOf() permitgate.ZonePolicies {
	p.gangPolicies.mu.Lock()
	defer p.gangPolicies.mu.Unlock()
	if p.gangPolicies.plugin == nil {
		return nil
	}
	return zonePolicies{p.gangPolicies.plugin}
}

// zonePolicies implements permitgate.ZonePolicies.
type zonePolicies struct{ plugin *zonespread.ZoneSpread }

func (z zonePolicies) Key(pod *v1.Pod) string { return z.plugin.Policies().Key(pod) }

func (z zonePolicies) Rules(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) plan.Rules {
	verdicts := z.plugin.Judge(ctx, state, pod, nodes)
	if !verdicts.Hard() {
		return nil
	}
	return zoneRules{verdicts}
}

// zoneRules implements plan.Rules.
type zoneRules struct{ verdicts *policies.Verdicts }

func (z zoneRules) Domain(node *v1.Node) string { return z.verdicts.Zones(node) }

func (z zoneRules) Check(node *v1.Node) string {
	if status := z.verdicts.Check(node); status != nil {
		return "kept: " + status.Message()
	}
	return ""
}

func (z zoneRules) Add(pod *v1.Pod, node *v1.Node) { z.verdicts.Add(pod, node, 1) }

func (z zoneRules) Remove(pod *v1.Pod, node *v1.Node) { z.verdicts.Add(pod, node, -1) }
