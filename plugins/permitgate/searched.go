package permitgate

import "time"

const (
	// searchShare limits failed searches for victims: a gang's next one comes after so many times as long as the last one took, once
	// for each gang whose search has failed. So all of them together take a fiftieth of the scheduler's time. searchLimit bounds
	// the wait where there are very many gangs.
	searchShare = 50
	searchLimit = 10 * time.Minute
	// searchInterval is the pause after a search has proved that no victims help, unless as much room has appeared as the gang
	// lacked.
	searchInterval = time.Minute
)

// searched records a failed search for victims.
type searched struct {
	at   time.Time
	took time.Duration
	// short is how many more members must fit, 0 if unknown; fitted is how many fitted without victims.
	short, fitted int
	// again is when to look at the gang again, if only time keeps it from another search; else zero.
	again time.Time
}

// missing returns for how many more members there must be room before another search is worthwhile, at most otherwise, when
// fit members fit without victims.
func (s *searched) missing(otherwise, fit int) int {
	switch {
	case s.at.IsZero():
		return otherwise
	case s.short == 0:
		return 1
	}
	return min(otherwise, max(1, s.short-(fit-s.fitted)))
}

// allows reports whether another search may be worthwhile now, when fit members fit without victims. gangs is the number of gangs
// whose search has failed, this one included.
func (s *searched) allows(fit, gangs int, now time.Time) bool {
	s.again = time.Time{}
	if s.at.IsZero() {
		return true
	}
	rest := searchShare * s.took
	rest = max(rest, min(rest*time.Duration(gangs), searchLimit))
	if fit-s.fitted < s.short {
		rest = max(searchInterval, rest)
	}
	if at := s.at.Add(rest); now.Before(at) {
		s.again = at
	}
	return s.again.IsZero()
}
