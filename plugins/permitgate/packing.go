package permitgate

import (
	"maps"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/permitgate/gang"
)

// A packed gang is to have all members in one domain of a node label. A round is confined to the domain of its
// proposal; when it fails, the next proposal is for another one.

// domain is the nodes with one value of a label; the zero value means all nodes.
type domain struct{ key, value string }

func (d domain) has(node *v1.Node) bool { return d.key == "" || node.Labels[d.key] == d.value }

// nodes returns the names of the nodes in the domain.
func (d domain) nodes(infos []fwk.NodeInfo) sets.Set[string] {
	names := sets.New[string]()
	for _, info := range infos {
		if node := info.Node(); d.has(node) {
			names.Insert(node.Name)
		}
	}
	return names
}

// needsDomain reports whether the next member that is placed decides the domain of a packed gang.
func (e *gangEntry) needsDomain() bool { return e.topology().Required && e.confined == domain{} }

// chooseDomain keeps a packed gang in the domain of the first of the nodes that is in one.
func (e *gangEntry) chooseDomain(infos fwk.NodeInfoLister, nodes ...string) {
	if d := domainOf(infos, e.topology().Key, nodes); d != (domain{}) {
		e.confined = d
	}
}

// domainOf returns the domain of the first of the nodes that is in one; zero if none is.
func domainOf(infos fwk.NodeInfoLister, key string, nodes []string) domain {
	for _, node := range nodes {
		if info, err := infos.Get(node); err == nil {
			if value, ok := info.Node().Labels[key]; ok {
				return domain{key, value}
			}
		}
	}
	return domain{}
}

// nodesInUse returns the nodes of members that are bound, or have a node.
func (e *gangEntry) nodesInUse() (nodes []string) {
	for uid, m := range e.pods {
		switch {
		case m.pod.Spec.NodeName != "":
			nodes = append(nodes, m.pod.Spec.NodeName)
		case e.gang.HasNode(uid):
			nodes = append(nodes, e.gang.Node(uid))
		}
	}
	return nodes
}

// domainsTried returns the domains that are left out of the next proposal, nil after all of them have been tried.
func (e *gangEntry) domainsTried() map[string]bool {
	if e.cycle.plan.exhausted {
		return nil
	}
	return maps.Clone(e.tried)
}

// noteTried notes that a domain has not taken the gang.
func (e *gangEntry) noteTried(domain string) {
	if e.tried == nil {
		e.tried = map[string]bool{}
	}
	e.tried[domain] = true
}

// noteTriedDomain is called when a round has failed: its domain has been tried.
func (e *gangEntry) noteTriedDomain(now time.Time) {
	switch e.gang.LastRollback().Cause {
	case gang.CauseUnschedulable, gang.CauseRefused, gang.CauseTimeout:
		if e.confined != (domain{}) {
			e.noteTried(e.confined.value)
			e.gang.RetryAfterPause(now) // in the next domain
		}
	default:
	}
	e.confined = domain{}
}
