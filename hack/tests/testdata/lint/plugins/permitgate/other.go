// Package permitgate is imported by the others and imports one itself.
package permitgate

import (
	"zonewise.dev/plugins/reservecache/ledger" // want depguard
	"zonewise.dev/plugins/zonespread/counts"   // want depguard
)

// Empty is all that it has.
type Empty struct{ ledger.Empty }

var _ = counts.UIDs
