package buy

import (
	"cmp"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

// FallAfter is how long what is asked for stays above what is wanted.
const FallAfter = 5 * time.Minute

// Buffer is what is asked for of one size in one zone.
type Buffer struct {
	// Name tells buffers apart; see Demand.name.
	Name, Zone string
	// Requests is the size. It is nil in a buffer of which no more is wanted.
	Requests v1.ResourceList
	// Placing is nil for that of the demand.
	Placing *Placing
	// Wanted is how many pods' room is wanted, Used how many of the promised pods have theirs, and Asked how many are
	// asked for.
	Wanted, Used, Asked int32
	// Promised is the most that Asked and Used may be together until more is promised: what is promised, and what was
	// until a moment ago and is still asked for.
	Promised int32
	// Fall is there while more is asked for than wanted.
	Fall *Fall
}

// Fall says how far what is asked for may fall: to Most, once FallAfter has passed since Since.
type Fall struct {
	Since time.Time
	// Most is the most that has been wanted since.
	Most int32
}

// surplus is how many more are asked for than wanted.
func (b *Buffer) surplus() int32 { return max(0, b.Asked-b.Wanted) }

// lack is how many more are wanted than asked for.
func (b *Buffer) lack() int32 { return max(0, b.Wanted-b.Asked) }

// Plan returns what to ask for from now on, given what is asked for, sorted by zone and name, with no buffer that asks
// for nothing and of which nothing is wanted. atMax says that spec.buy.max keeps some of what is wanted from being
// asked for.
func (d *Demand) Plan(asked []Buffer, now time.Time) (buffers []Buffer, atMax bool) {
	p := plan{demand: d, bound: d.Buy.Max}
	for i := range asked {
		b := asked[i]
		b.Requests, b.Placing, b.Wanted, b.Used = nil, nil, 0, 0
		b.Asked = min(b.Asked, p.bound) // others may have written any number
		p.buffers = append(p.buffers, &b)
	}
	for i := range d.Wants {
		w := &d.Wants[i]
		b := p.named(d.name(w.Zone, w.Requests, w.Placing), w.Zone)
		b.Requests, b.Placing, b.Wanted, b.Used = w.Requests, w.Placing, b.Wanted+w.Pods, b.Used+w.Used
	}
	slices.SortFunc(p.buffers, func(a, b *Buffer) int {
		return cmp.Or(strings.Compare(a.Zone, b.Zone), strings.Compare(a.Name, b.Name))
	})
	p.leaveOutUsed()
	p.fall(now)
	p.replace()
	p.cut()
	atMax = p.rise()
	for _, b := range p.buffers {
		if b.surplus() == 0 || p.frozen(b) {
			b.Fall = nil // what was frozen falls after the whole time again
		}
		b.Promised = max(b.Wanted, b.Asked) + b.Used
		if b.Asked > 0 || b.Wanted > 0 {
			buffers = append(buffers, *b)
		}
	}
	return buffers, atMax
}

type plan struct {
	demand  *Demand
	buffers []*Buffer
	bound   int32
}

func (p *plan) named(name, zone string) *Buffer {
	for _, b := range p.buffers {
		if b.Name == name {
			b.Zone = zone // the label may have been edited
			return b
		}
	}
	b := &Buffer{Name: name, Zone: zone}
	p.buffers = append(p.buffers, b)
	return b
}

// frozen reports whether no more is asked for of a buffer. It falls by what is used alone.
func (p *plan) frozen(b *Buffer) bool {
	return p.demand.Frozen != "" || slices.Contains(p.demand.Lost, b.Zone)
}

func (p *plan) total() int32 {
	var n int32
	for _, b := range p.buffers {
		n += b.Asked
	}
	return n
}

// leaveOutUsed lowers what is asked for by what is used of what was promised: an autoscaler would place the request
// beside the pods that have their room already.
func (p *plan) leaveOutUsed() {
	for _, b := range p.buffers {
		promised := max(b.Promised, b.Wanted+b.Used)
		b.Asked = min(b.Asked, max(0, promised-b.Used))
	}
}

// fall lowers what has been above what is wanted for long enough.
func (p *plan) fall(now time.Time) {
	for _, b := range p.buffers {
		switch {
		case b.surplus() == 0 || p.frozen(b):
		case b.Fall == nil:
			b.Fall = &Fall{Since: now, Most: b.Wanted}
		default:
			most := max(b.Fall.Most, b.Wanted)
			b.Fall = &Fall{Since: b.Fall.Since, Most: most}
			if now.Sub(b.Fall.Since) >= FallAfter {
				b.Asked = min(b.Asked, most)
				b.Fall = &Fall{Since: now, Most: b.Wanted}
			}
		}
	}
}

// replace asks for what is wanted in place of as much as is wanted no more in the same zone, or in no certain one.
func (p *plan) replace() {
	for _, b := range p.buffers {
		for _, other := range p.buffers {
			if p.frozen(b) || p.frozen(other) || other.Zone != b.Zone && other.Zone != "" {
				continue
			}
			n := min(b.lack(), other.surplus())
			b.Asked, other.Asked = b.Asked+n, other.Asked-n
		}
	}
}

// cut asks for no more than spec.buy.max, which may have been lowered: what is wanted no more goes first, then a part
// of the largest.
func (p *plan) cut() {
	for p.total() > p.bound {
		most := slices.MaxFunc(p.buffers, func(a, b *Buffer) int {
			return cmp.Or(cmp.Compare(a.surplus(), b.surplus()), cmp.Compare(a.Asked, b.Asked))
		})
		most.Asked--
	}
}

// rise asks for what is wanted and not asked for yet, one pod of each buffer at a time, and reports whether the bound
// keeps it from asking for all. As many as wait to be placed are left out: their room is there.
func (p *plan) rise() (atMax bool) {
	var lack int32
	for _, b := range p.buffers {
		if !p.frozen(b) {
			lack += b.lack()
		}
	}
	rest := max(0, lack-int32(p.demand.Waiting)) //nolint:gosec // pods of a cluster
	room := p.bound - p.total()
	for n := min(rest, room); n > 0; {
		for _, b := range p.buffers {
			if n > 0 && !p.frozen(b) && b.lack() > 0 {
				b.Asked++
				n--
			}
		}
	}
	return rest > room
}
