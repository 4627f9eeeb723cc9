// Package permitgate tests the PermitGate plugin inside the real scheduler (its queue, its framework, its
// waiting pods) over a fake API server.
package permitgate
