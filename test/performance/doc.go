// Package performance measures the plugins and their in-tree counterparts in one run.
package performance
