package sim

import "slices"

// StopTime is stopTime.
const StopTime = stopTime

// KindsWithoutObjects returns the kinds that plugins look at and of which a copy has no objects, in the order of their
// names: what these plugins say may be about another cluster.
func (s *Sim) KindsWithoutObjects() []string {
	var out []string
	for t := range s.informers.WaitForCacheSync(closed) {
		if s.store.kinds[storedAs(t)] == nil {
			out = append(out, t.Elem().Name())
		}
	}
	slices.Sort(out)
	return out
}
