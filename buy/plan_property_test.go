package buy

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// step is one look at the owner, some time after the one before.
type step struct {
	demand *Demand
	at     time.Time
}

// TestNoOscillation: whatever owners come and go, whichever zones are lost, and however the bound is changed,
//   - no more than the bound is asked for;
//   - what is asked for of a size in a zone is never below the most that was wanted of it in the last FallAfter, unless the bound or a freeze
//     was in the way;
//   - two falls of a buffer are at least FallAfter apart;
//   - what is not wanted for long enough is gone.
func TestNoOscillation(t *testing.T) {
	zones := []string{"a", "b", "c"}
	rapid.Check(t, func(t *rapid.T) {
		var buffers []Buffer
		var past []step
		now := start
		fell := map[string]time.Time{}
		bounds := rapid.SampledFrom([][]int32{{1000}, {5, 12}, {3, 1000}}).Draw(t, "bounds")
		troubled := rapid.Bool().Draw(t, "troubled")
		for i := range rapid.IntRange(1, 40).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(1, 200).Draw(t, "seconds")) * time.Second)
			d := demand(rapid.SampledFrom(bounds).Draw(t, "max"))
			for _, zone := range zones {
				if n := rapid.Int32Range(0, 6).Draw(t, fmt.Sprint("wanted in ", zone, i)); n > 0 {
					d.Wants = append(d.Wants, want(zone, "1", n))
				}
			}
			if troubled {
				d.Waiting = rapid.IntRange(0, 4).Draw(t, "waiting")
				if rapid.IntRange(0, 5).Draw(t, "lost") == 0 {
					d.Lost = []string{"b"}
				}
			}
			before := buffers
			buffers, _ = d.Plan(before, now)
			past = append(past, step{d, now})

			var total int32
			for _, b := range buffers {
				total += b.Asked
			}
			if total > d.Buy.Max {
				t.Fatalf("%d are asked for, more than %d", total, d.Buy.Max)
			}
			for _, zone := range zones {
				is, was := asked(d, buffers, zone, "1"), asked(d, before, zone, "1")
				if len(bounds) == 1 && is < was {
					if last, ever := fell[zone]; ever && now.Sub(last) < FallAfter {
						t.Fatalf("zone %s falls from %d to %d, %s after the last time", zone, was, is, now.Sub(last))
					}
					fell[zone] = now
				}
				if most := mostWanted(past, zone, now); !troubled && len(bounds) == 1 && is < most {
					t.Fatalf("%d are asked for in zone %s, and %d were wanted a moment ago", is, zone, most)
				}
			}
		}
		none := demand(1000)
		for range 3 {
			buffers, _ = none.Plan(buffers, now)
			now = now.Add(FallAfter)
		}
		if len(buffers) > 0 {
			t.Fatalf("%v are left although nothing is wanted", buffers)
		}
	})
}

// TestNeverMoreThanPromised: owners come to use what is held and leave it, zones are lost meanwhile, and the whole may
// be frozen. What is asked for and what is used in a zone are never more together than what was promised there, neither
// at once nor, after a promise was lowered, for longer than FallAfter and a look. While no zone is lost, all that is
// promised and not used is asked for.
func TestNeverMoreThanPromised(t *testing.T) {
	zones := []string{"a", "b", "c"}
	rapid.Check(t, func(t *rapid.T) {
		type world struct{ promised, used map[string]int32 }
		w := world{map[string]int32{}, map[string]int32{}}
		for _, zone := range zones {
			w.promised[zone] = rapid.Int32Range(1, 6).Draw(t, "promised in "+zone)
		}
		steady := rapid.Bool().Draw(t, "steady")
		most := map[string]int32{}
		var buffers []Buffer
		now := start
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(1, 200).Draw(t, "seconds")) * time.Second)
			d := demand(1000)
			for _, zone := range zones {
				if !steady && rapid.IntRange(0, 3).Draw(t, "another promise in "+zone) == 0 {
					w.promised[zone] = rapid.Int32Range(0, 6).Draw(t, "promised in "+zone)
				}
				w.used[zone] = rapid.Int32Range(0, w.promised[zone]).Draw(t, "used in "+zone)
				most[zone] = max(most[zone], w.promised[zone])
				d.want(zone, cpu("1"), nil, int64(w.promised[zone]), int64(w.used[zone]))
			}
			if rapid.IntRange(0, 3).Draw(t, "lost") == 0 {
				d.Lost = []string{rapid.SampledFrom(zones).Draw(t, "lost zone")}
			}
			if rapid.IntRange(0, 5).Draw(t, "frozen") == 0 {
				d.Frozen = "a zone is lost"
			}
			for i := range buffers { // as an API server keeps them
				buffers[i] = Read(d.CapacityBuffer(&buffers[i], Versions()[0]))
			}
			buffers, _ = d.Plan(buffers, now)
			for _, zone := range zones {
				n := asked(d, buffers, zone, "1")
				if n+w.used[zone] > most[zone] {
					t.Fatalf("in zone %s %d are asked for beside %d that are used, of %d that were promised", zone, n, w.used[zone], most[zone])
				}
				if len(d.Lost) == 0 && d.Frozen == "" && n+w.used[zone] < w.promised[zone] {
					t.Fatalf("in zone %s %d are asked for beside %d that are used, of %d that are promised", zone, n, w.used[zone], w.promised[zone])
				}
			}
		}
		last := demand(1000)
		for _, zone := range zones {
			last.want(zone, cpu("1"), nil, int64(w.promised[zone]), int64(w.used[zone]))
		}
		for range 3 {
			buffers, _ = last.Plan(buffers, now)
			now = now.Add(FallAfter)
		}
		for _, zone := range zones {
			if n := asked(last, buffers, zone, "1"); n+w.used[zone] != w.promised[zone] {
				t.Fatalf("in zone %s %d are asked for beside %d that are used, of %d that are promised", zone, n, w.used[zone], w.promised[zone])
			}
		}
	})
}

// mostWanted is the most that was wanted in a zone within the last FallAfter.
func mostWanted(past []step, zone string, now time.Time) int32 {
	var most int32
	for _, s := range past {
		for _, w := range s.demand.Wants {
			if w.Zone == zone && now.Sub(s.at) < FallAfter {
				most = max(most, w.Pods)
			}
		}
	}
	return most
}

// TestSettles: after long enough with the same wants exactly these are asked for, whatever was asked for before, and
// the next plans change nothing.
func TestSettles(t *testing.T) {
	sizes := []string{"1", "2", "3"}
	rapid.Check(t, func(t *rapid.T) {
		random := func(label string) *Demand {
			d := demand(1000)
			for _, zone := range []string{"", "a", "b"} {
				for _, size := range sizes {
					if n := rapid.Int32Range(0, 3).Draw(t, label+zone+size); n > 0 {
						d.Wants = append(d.Wants, want(zone, size, n))
					}
				}
			}
			return d
		}
		var buffers []Buffer
		now := start
		for range rapid.IntRange(0, 5).Draw(t, "steps") {
			buffers, _ = random("before").Plan(buffers, now)
			now = now.Add(time.Minute)
		}
		d := random("after")
		for range 4 {
			var atMax bool
			buffers, atMax = d.Plan(buffers, now)
			if atMax {
				t.Fatal("there is no bound")
			}
			for _, w := range d.Wants {
				if n := asked(d, buffers, w.Zone, w.Requests.Cpu().String()); n < w.Pods {
					t.Fatalf("%d of %v are asked for", n, w)
				}
			}
			now = now.Add(FallAfter)
		}
		if len(buffers) != len(d.Wants) {
			t.Fatalf("%v is asked for, not %v", buffers, d.Wants)
		}
		for _, b := range buffers {
			if b.Asked != b.Wanted || b.Fall != nil {
				t.Fatalf("%v does not settle", b)
			}
		}
	})
}
