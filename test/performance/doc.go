// Package performance measures the plugins against those in-tree, both in one run.
package performance
