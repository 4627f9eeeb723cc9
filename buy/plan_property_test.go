package buy

import (
	"fmt"
	"slices"
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
//   - two falls of a buffer are at least FallAfter apart, but for those by as many pods as have arrived;
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
		arrive := rapid.Bool().Draw(t, "arrive")
		free := !arrive // neither the bound nor a freeze was ever in the way
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
			if arrive {
				d.Arrived = map[string][]time.Time{}
				for _, zone := range zones {
					d.Arrived[zone] = slices.Repeat([]time.Time{now}, rapid.IntRange(0, 2).Draw(t, "arrived in "+zone))
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
			free = free && !troubled && len(bounds) == 1
			for _, zone := range zones {
				is, was := asked(d, buffers, zone, "1"), asked(d, before, zone, "1")
				if len(bounds) == 1 && is < was-int32(len(d.Arrived[zone])) {
					if last, ever := fell[zone]; ever && now.Sub(last) < FallAfter {
						t.Fatalf("zone %s falls from %d to %d, %s after the last time", zone, was, is, now.Sub(last))
					}
					fell[zone] = now
				}
				if most := mostWanted(past, zone, now); free && is < most {
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
