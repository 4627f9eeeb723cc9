// Package sim compares package sim with what it stands for: a scheduler on an API server. Both are given the same
// random clusters, and have to place the same pods on the same nodes, and to give the same reasons for those that wait.
package sim
