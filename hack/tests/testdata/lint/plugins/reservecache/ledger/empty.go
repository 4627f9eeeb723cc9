// Package ledger is there to be imported.
package ledger

// Empty is all that it has.
type Empty struct{}
