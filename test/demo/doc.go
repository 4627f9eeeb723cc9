// Package demo runs the demo as its users do.
package demo
