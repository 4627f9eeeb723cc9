// Package reservecache tests the ReserveCache plugin inside the real scheduling framework and the real
// scheduler, over a fake API server.
package reservecache
