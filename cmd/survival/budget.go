package survival

import (
	"syscall"
	"time"
)

// budget spreads work over time, so that no more than a fraction of a core is used.
type budget struct {
	fraction float64
	cpu      func() time.Duration // what the process has used
	// began is when the last work began, from what the process had used then.
	began time.Time
	from  time.Duration
	// counts: what the process uses still counts, since end was not called. Then it is spent.
	counts bool
	spent  time.Duration
}

// begin counts from now on what the process uses.
func (b *budget) begin(now time.Time) { b.began, b.from, b.counts = now, b.cpu(), true }

// end leaves out of the budget what the process uses until the next begin.
func (b *budget) end() { b.spent, b.counts = b.used(), false }

func (b *budget) used() time.Duration {
	if b.counts {
		return b.cpu() - b.from
	}
	return b.spent
}

// next is the time from which on the next work is within the budget, if nothing more is used until then.
func (b *budget) next() time.Time {
	return b.began.Add(time.Duration(float64(b.used()) / b.fraction))
}

// cpuTime is the CPU time that the process has used, in user and in kernel mode.
func cpuTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0 // it has no other error than a wrong argument
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
