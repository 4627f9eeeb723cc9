package permitgate

import (
	"maps"
	"slices"
	"sync"

	fwk "k8s.io/kube-scheduler/framework"
)

// profiles are the handles of the profiles that have the plugin. Its methods may be called from several goroutines.
type profiles struct {
	mu      sync.Mutex // guards handles
	handles map[string]fwk.Handle
}

// add takes a profile in.
func (p *profiles) add(h fwk.Handle) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.handles == nil {
		p.handles = map[string]fwk.Handle{}
	}
	p.handles[h.ProfileName()] = h
}

// of returns the handle of a profile, nil when it does not have the plugin.
func (p *profiles) of(name string) fwk.Handle {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.handles[name]
}

// has reports whether a profile has the plugin.
func (p *profiles) has(name string) bool { return p.of(name) != nil }

// all lists the handles, by the profiles' names.
func (p *profiles) all() []fwk.Handle {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]fwk.Handle, 0, len(p.handles))
	for _, name := range slices.Sorted(maps.Keys(p.handles)) {
		all = append(all, p.handles[name])
	}
	return all
}

// orAny returns the handle of a profile, or any handle if it does not have the plugin.
func (p *profiles) orAny(name string) fwk.Handle {
	if h := p.of(name); h != nil {
		return h
	}
	return p.any()
}

// any returns a handle for what all profiles have in common, such as the scheduling queue.
func (p *profiles) any() fwk.Handle { return p.all()[0] }
