package plugins_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"zonewise.dev/plugins"
)

func TestPackRegistersTheThreePluginsByName(t *testing.T) {
	pack := plugins.NewPack()
	names := make([]string, 0, 3)
	for name, factory := range pack.Factories() {
		require.NotNil(t, factory, name)
		names = append(names, name)
	}
	require.ElementsMatch(t, []string{"ZoneSpread", "ReserveCache", "PermitGate"}, names)
}

func TestEachPackIsASchedulerOfItsOwn(t *testing.T) {
	one, two := plugins.NewPack(), plugins.NewPack()
	require.NotSame(t, one.ReserveCache(), two.ReserveCache(), "two schedulers in one process must not share a ledger")
	require.NotSame(t, one.PermitGate(), two.PermitGate(), "nor gangs")
}
