package parts

import (
	"syscall"
	"time"
)

// Meter spreads the work of a part over time, so that the process uses no more than a fraction of a core. It is not
// safe for concurrent use.
type Meter struct {
	// Fraction is how much of a core may be used.
	Fraction float64
	// CPU returns what the process has used.
	CPU func() time.Duration

	// began is when the last work began, and from what the process had used then.
	began time.Time
	from  time.Duration
	// counts is true from Begin to End: what the process uses counts. After that it is spent.
	counts bool
	spent  time.Duration
}

// NewMeter returns a meter for a share of what the process may use.
func (s *Shared) NewMeter(share float64) Meter {
	return Meter{Fraction: s.CPUFraction * share, CPU: CPUTime}
}

// TryBegin begins if the work is within the budget now, and returns for how long it is not otherwise.
func (m *Meter) TryBegin(now time.Time) (wait time.Duration) {
	if until := m.Next().Sub(now); until > 0 {
		return until
	}
	m.Begin(now)
	return 0
}

// Begin counts from now on what the process uses.
func (m *Meter) Begin(now time.Time) { m.began, m.from, m.counts = now, m.CPU(), true }

// End leaves out of the budget what the process uses until the next Begin.
func (m *Meter) End() { m.spent, m.counts = m.Used(), false }

// Used is what counts since the last Begin.
func (m *Meter) Used() time.Duration {
	if m.counts {
		return m.CPU() - m.from
	}
	return m.spent
}

// Next is the time from which on the next work is within the budget, if nothing more is used until then.
func (m *Meter) Next() time.Time {
	return m.began.Add(time.Duration(float64(m.Used()) / m.Fraction))
}

// CPUTime is the CPU time that the process has used, in user and in kernel mode.
func CPUTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0 // it has no other error than a wrong argument
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
