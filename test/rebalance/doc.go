// Package rebalance shows on a real API server what rebalancing does to clusters that have drifted: with the shipped scheduler, controllers of
// Kubernetes and simulated kubelets, the controller of ZoneRebalances, which is killed at any time, or the descheduler in its place. A test
// sees the cluster as anybody does who watches its pods, and reads no status to know who was evicted.
package rebalance
