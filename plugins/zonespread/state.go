package zonespread

import (
	"fmt"
	"maps"
	"slices"

	fwk "k8s.io/kube-scheduler/framework"
)

const (
	preFilterStateKey fwk.StateKey = "PreFilter" + Name
	preScoreStateKey  fwk.StateKey = "PreScore" + Name
	updatedStateKey   fwk.StateKey = "Updated" + Name
)

// readState returns the state that an earlier extension point of the cycle has written.
func readState[T fwk.StateData](cycleState fwk.CycleState, key fwk.StateKey) (T, error) {
	var zero T
	data, err := cycleState.Read(key)
	if err != nil {
		return zero, fmt.Errorf("reading %q from cycleState: %w", key, err)
	}
	state, ok := data.(T)
	if !ok {
		return zero, fmt.Errorf("reading %q from cycleState: got a %T", key, data)
	}
	return state, nil
}

func sortedKeys(m map[string]string) []string {
	return slices.Sorted(maps.Keys(m))
}
