package survival

import (
	"syscall"
	"time"
)

// budget spreads rounds over time, so that the process uses no more than a fraction of a core.
type budget struct {
	fraction float64
	cpu      func() time.Duration // what the process has used
	// began is when the last round began, used what the process had used then.
	began time.Time
	used  time.Duration
}

func (b *budget) begin(now time.Time) { b.began, b.used = now, b.cpu() }

// next is the time from which on the next round is within the budget, if nothing more is used until then.
func (b *budget) next() time.Time {
	return b.began.Add(time.Duration(float64(b.cpu()-b.used) / b.fraction))
}

// cpuTime is the CPU time that the process has used, in user and in kernel mode.
func cpuTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0 // it has no other error than a wrong argument
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
